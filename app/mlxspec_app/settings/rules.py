"""What each setting of the file may be and what it means, in words for whoever got it wrong.

How a reply is drawn comes from the library's table; the rest, the app's own, stands here.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, get_args

from mlxspec.params.setting import Setting
from mlxspec.params.table import KEPT
from mlxspec_app.conversation.inks import INKS

Value = bool | int | float | str
ContextPolicy = Literal["ask", "drop", "rotate", "new"]
"""What happens when the context is full: `ask` the user; `drop` the oldest turn; `rotate`, let
the cache forget the oldest tokens; begin a `new` chat."""

_TOO_LARGE = 2**63
"""What TOML promises to keep of a whole number."""


@dataclass(frozen=True)
class Rule:
    """What a setting may be.

    Attributes:
        kind: Its type.
        allowed: That in words.
        meaning: What it does.
        fits: Whether a value of the type is allowed.
        choices: The closed list of what it may be, or nothing.
    """

    kind: type[bool] | type[int] | type[float] | type[str]
    allowed: str
    meaning: str
    fits: Callable[[Any], bool] = lambda value: True
    choices: tuple[str, ...] = ()

    def read(self, value: object) -> Value:
        """Return the value in its type.

        Raises:
            ValueError: It is not allowed.
        """
        fits_toml = type(value) is not int or abs(value) < _TOO_LARGE
        if self.kind is float and type(value) is int and fits_toml:
            value = float(value)
        is_of_kind = type(value) is self.kind  # isinstance would take a bool for an int
        if not (isinstance(value, Value) and is_of_kind and fits_toml and self.fits(value)):
            raise ValueError(f"is {value!r:.60}; allowed is {self.allowed}")
        return value


def _choice(options: Collection[str], meaning: str) -> Rule:
    words = f"one of {', '.join(options)}"
    return Rule(str, words, meaning, lambda value: value in options, tuple(options))


def _switch(meaning: str) -> Rule:
    return Rule(bool, "true or false", meaning)


def _of_table(row: Setting) -> Rule:
    assert row.range.kind is not None  # what a file can hold can be typed
    return Rule(row.range.kind, row.range.allowed, row.help, row.range.fits, row.range.choices)


KEY_LIST = Rule(
    str,
    'a key such as "ctrl+g", or several with commas between and no spaces',
    "the keys of an action",
    lambda value: re.fullmatch(r"[^\s,]+(,[^\s,]+)*", value) is not None,
)
SAMPLING = "sampling"
DEFAULTS: dict[str, Value] = {
    name: row.default for name, row in KEPT.items() if name.startswith(f"{SAMPLING}.")
}
"""The settings of a reply, by dotted name, as they are where the file says nothing."""

_SECTIONS: dict[str, dict[str, Rule]] = {
    "Look": {
        "ink": _choice(
            [ink.name for ink in INKS],
            "what the colours of a reply say when a chat begins; F2 changes it for now",
        ),
        "frame_rate": Rule(
            int,
            "a whole number from 1 to 60, or 0",
            "frames a second; 0 is 30, and 15 over SSH",
            lambda value: 0 <= value <= 60,
        ),
        "reduced_motion": _switch("nothing moves or blinks"),
        "ascii_glyphs": _switch("signs around the text in ASCII"),
    },
    "Chat": {
        "context_full": _choice(
            get_args(ContextPolicy),
            "when a chat no longer fits the model: ask; drop its oldest turns; rotate, forget the "
            "oldest tokens; begin a new chat",
        ),
        "model": Rule(
            str,
            'a folder, a GGUF file or a hub id in quotation marks, or ""',
            'model to begin with, "" for the default one; from the next start on',
        ),
        "drafter": Rule(
            str,
            "the name of a drafter in quotation marks",
            "drafter to begin with; from the next start on",
            lambda value: value != "",
        ),
        "learn": _switch(
            "keep what the table learns from your chats, readable by you alone; from the next "
            "start on"
        ),
    },
    "Sampling": {name: _of_table(KEPT[name]) for name in DEFAULTS}
    | {
        # one that may not be 0: a chat of empty replies would look broken
        "sampling.max_tokens": Rule(
            int,
            "a whole number above 0",
            KEPT["sampling.max_tokens"].help,
            lambda value: value > 0,
        )
    },
}


def sections(themes: Collection[str] = ()) -> dict[str, dict[str, Rule]]:
    """Return the rule of every setting, keys excepted, by dotted name, under headings, in order.

    Args:
        themes: The themes there are; without any, every name is allowed.
    """
    words, meaning = "the name of a theme in quotation marks", "colours of the app"
    theme = _choice(themes, meaning) if themes else Rule(str, words, meaning)
    return {**_SECTIONS, "Look": {"theme": theme, **_SECTIONS["Look"]}}


def rules(themes: Collection[str] = ()) -> dict[str, Rule]:
    """Return the same without the headings."""
    return {name: rule for section in sections(themes).values() for name, rule in section.items()}
