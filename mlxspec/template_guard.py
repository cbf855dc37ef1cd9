"""Stops a chat template that runs on: it is a program, and comes from wherever the model does.

Jinja's sandbox keeps it from files and from Python's own machinery, but not from loops inside of
loops. So the thread that renders it looks at its own clock between the lines of the template; the
clock is the processor's, as a machine that is busy or asleep is no fault of the template. Powers
are refused: one of them, written in a single line, can run for longer than anybody lives.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any

from jinja2 import Environment

TIME_S = 10.0
"""Seconds of processor; real templates take thousandths."""

_CODE = "<template>"  # Jinja's name for the file of what it compiled
_LINES = 64  # between two looks at the clock


class TemplateStoppedError(RuntimeError):
    """A template ran for longer than any has to, or would."""


def refuse_powers(template: str | Mapping[str, str]) -> None:
    """Raise TemplateStoppedError where a template, or one of several, takes a power."""
    templates = [template] if isinstance(template, str) else template.values()
    if any(map(_takes_powers, templates)):
        raise TemplateStoppedError("it takes powers (**), which may never end and no chat needs")


@cache  # every turn asks the same
def _takes_powers(template: str) -> bool:
    return any(token[1:] == ("operator", "**") for token in Environment().lex(template))


@contextmanager
def stopped_in_time() -> Iterator[None]:
    """Raise TemplateStoppedError in the block once a template in it took `TIME_S`."""
    end, num_lines = time.thread_time() + TIME_S, 0

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        return step if frame.f_code.co_filename == _CODE else None

    def step(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal num_lines
        num_lines += 1
        if num_lines % _LINES == 0 and time.thread_time() > end:
            raise TemplateStoppedError(f"it ran for more than {TIME_S:g} seconds and was stopped")
        return step

    before = sys.gettrace()  # a debugger's, most likely
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)
