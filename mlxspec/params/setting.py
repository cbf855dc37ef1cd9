"""A row of the table of settings: a field, its range, and its names outside Python.

A field of `SamplingParams`, `GenerationParams` or `Options` is declared with `setting(...)`, which
states all of this once. The checks, the flags of the command line, the settings file and its
screen, the slash words of a chat and the manual are made of these rows. Outside Python a setting
has the name of its field, unless the row gives another one or says why it has none.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from typing import Any, Literal, get_args

from mlxspec.params.checks import choice, flag, real, set_fields, whole

Door = Literal["flag", "word", "file"]
"""A way to a setting from outside Python: a flag of the command line, a slash word of a chat, the
settings file with its screen."""


@dataclass(frozen=True)
class Range:
    """The allowed values of a setting.

    Given the setting's name and a value, `check` returns the value to store or raises ValueError.
    `kind` is the type that a user types; None where only Python can give the value.
    """

    kind: type[bool] | type[int] | type[float] | type[str] | None
    allowed: str  # what is allowed, in words
    check: Callable[[str, Any], Any]
    choices: tuple[str, ...] = ()  # the closed list of allowed values, or nothing
    words: Mapping[str, bool | int] = field(
        default_factory=dict
    )  # what a slash word takes for values

    def fits(self, value: object) -> bool:
        try:
            self.check("", value)
        except ValueError:
            return False
        return True


def whole_number(allowed: str = "0 or more", **limits: float) -> Range:
    """Return the range of whole numbers; `limits` are the `least` and `most` of `whole`."""
    check = partial(whole, allowed=allowed, **limits)  # type: ignore[arg-type]
    return Range(int, f"a whole number, {allowed}", check)


def number(allowed: str, fits: Callable[[float], bool]) -> Range:
    """Return the range of finite numbers for which `fits` is true."""
    return Range(float, allowed, partial(real, allowed=allowed, fits=fits))


def one_of(choices: Collection[str]) -> Range:
    """Return the range of a closed list."""
    allowed = f"one of {', '.join(choices)}"
    return Range(str, allowed, partial(choice, choices=choices), tuple(choices))


SWITCH = Range(bool, "on or off", flag, words={"on": True, "off": False})


@dataclass(frozen=True)
class Setting:
    """A row of the table; `absent` says why it has no flag, word or file name."""

    name: str  # of the field in Python
    default: Any
    range: Range
    help: str  # what it does, in a few words
    flag: str = ""  # the flag of the command line, or ""
    word: str = ""  # the slash word of a chat, or ""
    file: str = ""  # the dotted name in the settings file, or ""
    noun: str = ""  # a word for the value after flag and slash word
    unset: str = ""  # what the command line does without the flag, where that is not the default
    repeats: bool = False  # whether the flag may be given several times
    typed: Range | None = None  # a narrower range for what a user types
    absent: Mapping[Door, str] = field(default_factory=dict)

    @property
    def asked(self) -> Range:
        """The range of what a user types."""
        return self.typed or self.range


def setting(
    default: Any,
    range: Range,
    help: str,
    absent: str | Mapping[Door, str] | None = None,
    **doors: Any,
) -> Any:
    """Return the declaration of a field with its row; a text as `absent` is of all doors."""
    missing = dict.fromkeys(get_args(Door), absent) if isinstance(absent, str) else absent or {}
    row = {"row": Setting("", default, range, help, absent=missing, **doors)}
    if isinstance(default, dict):  # a dataclass refuses a mutable default
        return field(default_factory=default.copy, metadata=row)
    return field(default=default, metadata=row)


when_loaded = partial(
    setting,
    absent={
        "word": "it takes effect when a model is loaded",
        "file": "what suits one model does not suit the next that a chat loads",
    },
)
"""Declares a field that has a flag alone."""


@cache
def rows_of(settings: type, section: str = "") -> tuple[Setting, ...]:
    """Return the rows of a dataclass in the order of its fields; `section` is that of the file."""
    found: list[Setting] = []
    for item in fields(settings):
        if row := item.metadata.get("row"):
            flag = f"--{item.name.replace('_', '-')}"
            names = {"flag": flag, "word": item.name, "file": section + item.name}
            doors = {
                door: "" if door in row.absent else getattr(row, door) or name
                for door, name in names.items()
            }
            found.append(replace(row, name=item.name, **doors))
    return tuple(found)


def check_fields(settings: object) -> None:
    """Check every field of a frozen dataclass that has a row, and store the checked values."""
    kind: Any = type(settings)
    for row in rows_of(kind):
        value = getattr(settings, row.name)
        if value is None and row.default is None:
            continue  # None means "not given" where it is the default, so no range applies
        set_fields(settings, **{row.name: row.range.check(row.name, value)})
