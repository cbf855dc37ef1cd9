"""The rule of each setting in the file: its type, its allowed values and its meaning.

The rules of the sampling params come from the library's table; those of the app itself are here.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, get_args

from mlxspec.params.setting import Setting
from mlxspec.params.table import STORED
from mlxspec_app.conversation.views import INKS, VIEWS
from mlxspec_app.sessions.session import CHAT_DEFAULTS

Value = bool | int | float | str
ContextPolicy = Literal["ask", "drop", "rotate", "new"]
# Those of `mlxspec_app.themes`, which a chat in plain lines does not import.
_THEMES = ("mint", "day", "dusk", "contrast", "terminal", "terminal-light")
_TOO_LARGE = 2**63  # TOML guarantees integers of 64 bits only


@dataclass(frozen=True)
class Rule:
    """The rule of one setting; `allowed` says in words which values `fits` accepts."""

    kind: type[bool] | type[int] | type[float] | type[str]
    allowed: str
    meaning: str
    fits: Callable[[Any], bool] = lambda value: True
    choices: tuple[str, ...] = ()  # all allowed values, if they are a list
    examples: tuple[str, ...] = ()  # some that the keys cycle through

    def read(self, value: object) -> Value:
        """Return the value in the type of the setting; raises ValueError if it is not allowed."""
        fits_toml = type(value) is not int or abs(value) < _TOO_LARGE
        if self.kind is float and type(value) is int and fits_toml:
            value = float(value)
        is_of_kind = type(value) is self.kind  # isinstance accepts a bool as an int
        if not (isinstance(value, Value) and is_of_kind and fits_toml and self.fits(value)):
            raise ValueError(f"is {value!r:.60}; allowed is {self.allowed}")
        return value

    def read_typed(self, text: str) -> Value:
        """Convert typed text to a value; raises ValueError if it is not allowed."""
        text = text.strip()
        if self.kind in (int, float):
            try:
                return self.read(self.kind(text))
            except (ValueError, OverflowError) as error:
                raise ValueError(f"is {text!r:.60}; allowed is {self.allowed}") from error
        if self.kind is bool:
            return self.read({"true": True, "false": False}.get(text.lower(), text))
        return self.read(text)


def _choice(options: Collection[str], meaning: str) -> Rule:
    words = f"one of {', '.join(options)}"
    return Rule(str, words, meaning, lambda value: value in options, tuple(options))


def _switch(meaning: str) -> Rule:
    return Rule(bool, "true or false", meaning)


def _of_table(row: Setting) -> Rule:
    allowed = row.asked
    assert allowed.kind is not None  # every setting in the file has a type
    return Rule(allowed.kind, allowed.allowed, row.help, allowed.fits, allowed.choices)


KEY_LIST = Rule(
    str,
    'a key such as "ctrl+t", or several separated by commas without spaces',
    "the keys of an action",
    lambda value: re.fullmatch(r"[^\s,]+(,[^\s,]+)*", value) is not None,
)
KEYS, SAMPLING = "keys", "sampling"
DEFAULTS: dict[str, Value] = {
    **{name: row.default for name, row in STORED.items() if name.startswith(f"{SAMPLING}.")},
    **{f"{SAMPLING}.{name}": value for name, value in CHAT_DEFAULTS.items()},
    f"{SAMPLING}.stop_repeats": True,
    f"{SAMPLING}.chat_template_args": "",
}
"""Defaults of the sampling params of a chat, by dotted name; a model may recommend others."""

_TEMPLATE = STORED["sampling.chat_template_args"]
SECTIONS: dict[str, dict[str, Rule]] = {
    "Look": {
        "theme": _choice(_THEMES, "colours of the app"),
        "ink": _choice(
            [ink.name for ink in INKS],
            "what the colours of the X-ray say at the start; /ink changes it for this session",
        ),
        "view": _choice(
            [view.name for view in VIEWS],
            "how much of its origin a reply shows: calm, a tint for guessed words; xray, "
            "everything; F2 changes it",
        ),
        "frame_rate": Rule(
            int,
            "a whole number from 1 to 60, or 0",
            "frames per second; 0 means 30, or 15 over SSH",
            lambda value: 0 <= value <= 60,
        ),
        "reduced_motion": _switch("nothing moves or blinks"),
        "ascii_glyphs": _switch("ASCII signs in place of symbols"),
    },
    "Chat": {
        "context_full": _choice(
            get_args(ContextPolicy),
            "when a chat no longer fits the model: ask; drop its oldest turns; rotate, forget the "
            "oldest tokens; start a new chat",
        ),
        "model": Rule(
            str,
            'a folder, a GGUF file or a hub id in quotation marks, or ""',
            'model to start with, "" for the default one; from the next start on',
        ),
        "drafter": Rule(
            str,
            "the name of a drafter in quotation marks",
            "drafter to start with; from the next start on",
            lambda value: value != "",
        ),
        "learn": _switch(
            "keep what the table learns from your chats, readable by you alone; copy from them; "
            "from the next start on"
        ),
    },
    "Sampling": {name: _of_table(STORED[name]) for name in DEFAULTS}
    | {
        # the library allows 0, but a chat of empty replies would look broken
        "sampling.max_tokens": Rule(
            int,
            "a whole number above 0",
            STORED["sampling.max_tokens"].help,
            lambda value: value > 0,
        ),
        "sampling.chat_template_args": Rule(
            str,
            'NAME=VALUE or a JSON object, or "" for none',
            "a switch of the model's chat template: enable_thinking=false asks for no reasoning",
            lambda value: value == "" or _TEMPLATE.range.fits(value),
            examples=("", "enable_thinking=false", "enable_thinking=true"),
        ),
    },
}
"""The rules of all settings except keys: heading to dotted name to rule, in order."""

RULES = {name: rule for section in SECTIONS.values() for name, rule in section.items()}
"""The same rules by dotted name."""


def rule_of(name: str) -> Rule:
    """Return the rule of a setting by dotted name, such as "sampling.top_p" or "keys.chat.stop".

    Raises ValueError if there is no such setting.
    """
    if name.startswith(f"{KEYS}."):
        return KEY_LIST
    if name not in RULES:
        raise ValueError(f"{name} is not a setting; known are {', '.join(RULES)} and {KEYS}")
    return RULES[name]


def checked(name: str, value: Value | None) -> Value | None:
    """Return a value of a setting in its type; None, for its default, is always allowed.

    Raises ValueError if there is no such setting, or if it cannot have this value.
    """
    rule = rule_of(name)
    try:
        return None if value is None else rule.read(value)
    except ValueError as error:
        raise ValueError(f"{name} {error}") from error
