"""Stop a chat template that does not end: it is a program, from the same source as the model.

Jinja's sandbox protects files and Python's internals, but allows nested loops. So the thread that
renders the template checks a clock between the lines of the template. The clock counts CPU time of
the thread, so a busy or sleeping machine does not stop a good template. Powers are refused: a
single one, on one line, can run for years.
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
"""Seconds of CPU time; real templates take milliseconds."""

_CODE = "<template>"  # Jinja's file name of compiled templates
_LINES = 64  # template lines between two checks of the clock


class TemplateStoppedError(RuntimeError):
    """A template ran for too long, or could do so."""


def refuse_powers(template: str | Mapping[str, str]) -> None:
    """Raise TemplateStoppedError if a template, or one of several, has a power (**)."""
    templates = [template] if isinstance(template, str) else template.values()
    if any(map(_takes_powers, templates)):
        raise TemplateStoppedError("it uses powers (**), which may never end and no chat needs")


@cache  # every turn checks the same template
def _takes_powers(template: str) -> bool:
    return any(token[1:] == ("operator", "**") for token in Environment().lex(template))


@contextmanager
def stopped_in_time() -> Iterator[None]:
    """Raise TemplateStoppedError in the block when a template in it has run for `TIME_S`."""
    end, num_lines = time.thread_time() + TIME_S, 0

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        return step if frame.f_code.co_filename == _CODE else None

    def step(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal num_lines
        num_lines += 1
        if num_lines % _LINES == 0 and time.thread_time() > end:
            raise TemplateStoppedError(f"it ran for more than {TIME_S:g} seconds and was stopped")
        return step

    before = sys.gettrace()  # that of a debugger, most likely
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)
