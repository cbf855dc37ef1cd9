"""A row of the table of settings: a field, what it may be, and what every front door calls it.

A field of `SamplingParams`, `GenerationParams` or `Options` is declared with `setting(...)`, which
says all of it in one place. The checks, the flags of the command line, the settings file and its
screen, the slash words of a chat and the manual are made of these rows.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from typing import Any, Literal

from mlxspec.params.checks import choice, flag, real, settle, whole

Door = Literal["flag", "word", "file"]
"""A way to a setting from outside Python: a flag of the command line, a slash word of a chat, the
settings file with its screen."""


@dataclass(frozen=True)
class Range:
    """What the value of a setting may be.

    Attributes:
        kind: The type in which it is typed; None where it cannot be.
        allowed: What is allowed, in words.
        check: Returns the value as it is kept, given the setting's name and what was got; raises
            ValueError for what is not allowed.
        choices: The closed list of what it may be, or nothing.
    """

    kind: type[bool] | type[int] | type[float] | type[str] | None
    allowed: str
    check: Callable[[str, Any], Any]
    choices: tuple[str, ...] = ()

    def fits(self, value: object) -> bool:
        """Return whether a value is allowed."""
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
    """Return the range of finite numbers that fit."""
    return Range(float, allowed, partial(real, allowed=allowed, fits=fits))


def one_of(choices: Collection[str]) -> Range:
    """Return the range of a closed list."""
    allowed = f"one of {', '.join(choices)}"
    return Range(str, allowed, partial(choice, choices=choices), tuple(choices))


SWITCH = Range(bool, "on or off", flag)


@dataclass(frozen=True)
class Setting:
    """A row of the table.

    Attributes:
        name: The field, which is its name in Python.
        default: Its value where nothing is said.
        range: What it may be.
        help: What it does, in a few words.
        flag: The flag of the command line, or "".
        word: The slash word of a chat, or "".
        file: The dotted name in the settings file, or "".
        noun: What follows flag and word, in a word.
        unset: What the command line does without the flag, where that is not the default.
        repeats: Whether the flag may be given several times.
        absent: Why it has none of these: the reason, by the door that is missing.
    """

    name: str
    default: Any
    range: Range
    help: str
    flag: str = ""
    word: str = ""
    file: str = ""
    noun: str = ""
    unset: str = ""
    repeats: bool = False
    absent: Mapping[Door, str] = field(default_factory=dict)


def setting(default: Any, range: Range, help: str, **doors: Any) -> Any:
    """Return the declaration of a field with its row; see `Setting` for the arguments."""
    row = {"row": Setting("", default, range, help, **doors)}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=row)
    return field(default=default, metadata=row)


@cache
def rows_of(settings: type) -> tuple[Setting, ...]:
    """Return the rows of a dataclass, in its order."""
    return tuple(
        replace(item.metadata["row"], name=item.name)
        for item in fields(settings)
        if "row" in item.metadata
    )


def check_fields(settings: object) -> None:
    """Check every field of a frozen dataclass that has a row, and keep what the check returns.

    Raises:
        ValueError: A value is of the wrong type or out of range.
    """
    kind: Any = type(settings)
    for row in rows_of(kind):
        value = getattr(settings, row.name)
        if value is None and row.default is None:
            continue  # nothing was said, and nothing need be
        settle(settings, **{row.name: row.range.check(row.name, value)})
