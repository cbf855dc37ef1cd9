"""What each setting may be: its type, its range, and that in words for whoever got it wrong."""

import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, get_args

from mlxspec_app.conversation.inks import INKS

Value = bool | int | float | str
ContextPolicy = Literal["ask", "drop", "rotate", "new"]
"""What happens when the context is full: `ask` the user; `drop` the oldest turn; `rotate`, let
the cache forget the oldest tokens; begin a `new` chat."""

_MIN_TEMPERATURE = 1e-5
_TOO_LARGE = 2**63


@dataclass(frozen=True)
class Rule:
    """What a setting may be.

    Attributes:
        kind: Its type.
        allowed: That in words.
        fits: Whether a value of the type is allowed.
        choices: The closed list of what it may be, or nothing.
    """

    kind: type[bool] | type[int] | type[float] | type[str]
    allowed: str
    fits: Callable[[Any], bool] = lambda value: True
    choices: tuple[str, ...] = ()

    def read(self, value: object) -> Value:
        """Return the value in its type.

        Raises:
            ValueError: It is not allowed.
        """
        if self.kind is float and type(value) is int and abs(value) < _TOO_LARGE:
            value = float(value)
        is_of_kind = type(value) is self.kind  # isinstance would take a bool for an int
        if not (isinstance(value, Value) and is_of_kind and self.fits(value)):
            raise ValueError(f"is {value!r:.60}; allowed is {self.allowed}")
        return value


def _choice(*options: str) -> Rule:
    return Rule(str, f"one of {', '.join(options)}", lambda value: value in options, options)


def _number(kind: type[int] | type[float], low: float, high: float, words: str) -> Rule:
    return Rule(kind, words, lambda value: low <= value <= high)


_FLAG = Rule(bool, "true or false")
_ANY_NUMBER = Rule(float, "a finite number, 0 for none", math.isfinite)
KEY_LIST = Rule(
    str,
    'a key such as "ctrl+g", or several with commas between and no spaces',
    lambda value: re.fullmatch(r"[^\s,]+(,[^\s,]+)*", value) is not None,
)
_RULES: dict[str, Rule] = {
    "ink": _choice(*(ink.name for ink in INKS)),
    "frame_rate": _number(int, 0, 60, "a whole number from 1 to 60, or 0"),
    "reduced_motion": _FLAG,
    "ascii_glyphs": _FLAG,
    "context_full": _choice(*get_args(ContextPolicy)),
    "model": Rule(str, 'a folder, a GGUF file or a hub id in quotation marks, or ""'),
    "drafter": Rule(str, "the name of a drafter in quotation marks", lambda value: value != ""),
    "learn": _FLAG,
    "sampling.temperature": Rule(
        float,
        f"0, or {_MIN_TEMPERATURE:g} and more",
        lambda value: value == 0 or _MIN_TEMPERATURE <= value < math.inf,
    ),
    "sampling.top_k": _number(int, 0, _TOO_LARGE, "a whole number, 0 for all"),
    "sampling.top_p": Rule(float, "more than 0 and at most 1", lambda value: 0 < value <= 1),
    "sampling.min_p": _number(float, 0, 1, "at least 0 and at most 1"),
    "sampling.repetition_penalty": Rule(
        float, "more than 0, 1 for none", lambda value: 0 < value < math.inf
    ),
    "sampling.presence_penalty": _ANY_NUMBER,
    "sampling.frequency_penalty": _ANY_NUMBER,
    "sampling.max_tokens": _number(int, 1, _TOO_LARGE, "a whole number above 0"),
}


def rules(themes: Collection[str] = ()) -> dict[str, Rule]:
    """Return the rule of every setting, keys excepted, by dotted name and in order.

    Args:
        themes: The themes there are; without any, every name is allowed.
    """
    theme = _choice(*themes) if themes else Rule(str, "the name of a theme in quotation marks")
    return {"theme": theme, **_RULES}
