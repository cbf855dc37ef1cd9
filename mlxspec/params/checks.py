"""Checks of settings: first the type, then the range; one message names both.

A value of the wrong type is refused and never converted: 2.5 is no number of tokens, "0.7" no
temperature, and True is not 1. Every failure raises ValueError, so a caller handles one kind of
error. Numbers and arrays of NumPy are accepted, and NumPy need not be installed.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from numbers import Integral, Real
from os import PathLike
from typing import Any, TypeGuard, TypeVar

_SHOWN = 60  # characters of a value in a message

T = TypeVar("T")


def refusal(name: str, allowed: str, value: object) -> ValueError:
    """Return the error for a value out of range."""
    return ValueError(f"{name} must be {allowed}; got {_shown(value)}")


def wrong_type(name: str, allowed: str, value: object) -> ValueError:
    """Return the error for a value of the wrong type; the message names the type."""
    return ValueError(f"{name} must be {allowed}; got {_shown(value)} of type {_type(value)}")


def set_fields(settings: object, **values: object) -> None:
    """Set fields of a frozen dataclass to their checked values; call it in `__post_init__`."""
    for name, value in values.items():
        object.__setattr__(settings, name, value)  # the usual assignment raises: it is frozen


def whole(
    name: str, value: object, allowed: str = "0 or more", *, least: int = 0, most: float = math.inf
) -> int:
    """Return a whole number from `least` to `most`; `allowed` is that range in words."""
    if isinstance(value, bool) or not isinstance(value, Integral):  # to Python, True is an int
        raise wrong_type(name, f"a whole number, {allowed}", value)
    number = int(value)
    if not least <= number <= most:
        raise refusal(name, allowed, number)
    return number


def real(name: str, value: object, allowed: str, fits: Callable[[float], bool]) -> float:
    """Return a finite number for which `fits` is true; `allowed` says which, in words."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise wrong_type(name, f"a number, {allowed}", value)
    try:
        number = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        number = math.inf
    if not math.isfinite(number) or not fits(number):
        raise refusal(name, allowed, value)
    return number


def flag(name: str, value: object) -> bool:
    """Return True or False; 0 and 1 are refused."""
    if not isinstance(value, bool):
        raise wrong_type(name, "True or False", value)
    return value


def text(name: str, value: object, allowed: str = "a text") -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise wrong_type(name, allowed, value)
    return value


def choice(name: str, value: T, choices: Collection[object]) -> T:
    """Return one of a few texts."""
    if not isinstance(value, str) or value not in choices:
        raise refusal(name, f"one of {', '.join(map(str, choices))}", value)
    return value


def name_or_path(name: str, value: object) -> str | PathLike[str]:
    """Return the name or path of a model or drafter."""
    if not isinstance(value, str | PathLike):
        raise wrong_type(name, "a name or a path", value)
    return value


def function(name: str, value: T) -> T:
    """Return a function."""
    if not callable(value):
        raise wrong_type(name, "a function", value)
    return value


def functions(name: str, values: Sequence[T]) -> tuple[T, ...]:
    """Return functions as a tuple."""
    if not is_list(values) or not all(map(callable, values)):
        raise wrong_type(name, "functions in a list or tuple", values)
    return tuple(values)


def instance(name: str, value: object, kind: type[T]) -> T:
    """Return an instance of a class."""
    if not isinstance(value, kind):
        raise wrong_type(name, f"of type {kind.__name__}", value)
    return value


def texts(name: str, value: object, *, may_be_empty: bool = False) -> tuple[str, ...]:
    """Return texts as a tuple; a single text gives a tuple of one."""
    allowed = "a text, or several in a tuple"
    found = (value,) if isinstance(value, str) else value
    if not is_list(found) or not all(isinstance(one, str) for one in found):
        raise wrong_type(name, allowed, value)
    if not (may_be_empty or all(found)):
        raise ValueError(f"{name} holds an empty text, which would end nothing: leave it out")
    return tuple(found)


def token_ids(name: str, value: object, allowed: str = "token ids in a list or array") -> list[int]:
    """Return token ids as Python numbers.

    The value is a sequence of whole numbers, or an array of one axis of MLX, NumPy and the like;
    `allowed` says so in words.
    """
    found: Any = value
    if hasattr(found, "tolist") and hasattr(found, "ndim"):
        if found.ndim != 1:
            raise ValueError(
                f"{name} must be {allowed}, of one axis; got an array of shape "
                f"{tuple(found.shape)}: take one row of it"
            )
        found = found.tolist()
    if not is_list(found):
        raise wrong_type(name, allowed, value)
    if set(map(type, found)) <= {int}:  # the usual case, fast for prompts of many tokens
        return list(found)
    for index, token in enumerate(found):
        if isinstance(token, bool) or not isinstance(token, Integral):
            raise ValueError(
                f"{name} must be {allowed}, whole numbers; got {_shown(token)} of type "
                f"{_type(token)} as item {index}"
            )
    return [int(token) for token in found]


def biases(name: str, value: object) -> dict[int, float]:
    """Return a copy of logit biases, finite numbers by token id."""
    if not isinstance(value, Mapping):
        raise wrong_type(name, "a mapping of token ids to numbers", value)
    return {
        whole(f"{name}: a token id", token): real(
            f"{name} of token {_shown(token)}", bias, "finite", math.isfinite
        )
        for token, bias in value.items()
    }


def is_list(value: object) -> TypeGuard[Sequence[Any]]:
    """Return whether a value is a sequence other than text or bytes."""
    is_text = isinstance(value, str | bytes | bytearray | memoryview)
    return isinstance(value, Sequence) and not is_text


def _type(value: object) -> str:
    return type(value).__name__


def _shown(value: object) -> str:
    try:
        return f"{value!r:.{_SHOWN}}"
    except ValueError:  # Python refuses to print a number of thousands of digits
        return "a number of many digits"
