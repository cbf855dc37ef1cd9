"""Whether there is a terminal to draw on; pipes and dumb terminals get bare lines."""

import os
import sys


def can_draw() -> bool:
    """Return whether an app can be drawn here: both ends a terminal, and not a dumb one."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return is_terminal and os.environ.get("TERM") != "dumb"
