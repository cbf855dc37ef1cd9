"""How often the garbage collector stops everything.

A full collection walks every object, and an open conversation holds a hundred thousand of them: at
the interpreter's own rate it runs every few seconds while text streams in, for longer than a frame
each time. What Textual leaves behind in reference cycles is small, so full collections can wait
twenty times as long; those of young objects, which find most of it, stay as they are.
"""

import gc

_FULL_AFTER = 200  # collections of the middle generation; 10 by default


def collect_rarely() -> None:
    """Collect garbage from now on, in this process, and make full collections rarer."""
    gc.enable()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _FULL_AFTER)
