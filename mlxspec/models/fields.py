"""Typed access to a checkpoint's config.json; a message names the key of a bad value.

In Hugging Face a wrong value becomes a crash deep in the model.
"""

import sys
from collections.abc import Mapping
from typing import Any

from mlxspec.errors import UnsupportedModelError

MAX_INTEGER = 2**31 - 1  # the largest size of an axis, in MLX
_SHOWN = 200  # characters of a value in a message


class Fields:
    """The keys of one JSON object of a config.

    A missing key without a default and a value of the wrong type or range are refused. The message
    starts with `place`, the file and section, and ends with `advice`.
    """

    def __init__(self, values: Mapping[str, Any], place: str = "config.json", advice: str = ""):
        self._values = values
        self._place = place
        self._advice = f": {advice}" if advice else ""

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def get(self, key: str) -> Any:
        """Return the unchecked value, None if it is missing."""
        return self._values.get(key)

    def integer(
        self, key: str, default: int | None = None, *, minimum: int = 1, maximum: int = MAX_INTEGER
    ) -> int:
        """Return a whole number from `minimum` to `maximum`."""
        value = self._value(key, default)
        if type(value) is not int or not minimum <= value <= maximum:
            raise self.refusal(key, f"a whole number from {minimum} to {maximum}")
        return value

    def number(self, key: str, default: float | None = None, *, above: float = 0.0) -> float:
        """Return a finite number greater than `above`."""
        value = self._value(key, default)
        if type(value) not in (int, float) or not above < value <= sys.float_info.max:
            raise self.refusal(key, f"a finite number greater than {above:g}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self.refusal(key, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self.refusal(key, "a string")
        return value

    def section(self, key: str) -> "Fields":
        """Return the JSON object under `key`, empty if it is missing."""
        value = self._value(key, {})
        if not isinstance(value, Mapping):
            raise self.refusal(key, "a JSON object")
        return Fields(value, f"{self._place}, {key}", self._advice.removeprefix(": "))

    def refusal(
        self, key: str, allowed: str, kind: type[UnsupportedModelError] = UnsupportedModelError
    ) -> UnsupportedModelError:
        """Return the error with the value of `key` and the allowed values."""
        return kind(
            f"{self._place}: '{key}' is {self._values.get(key)!r:.{_SHOWN}}; it must be "
            f"{allowed}{self._advice}"
        )

    def _value(self, key: str, default: Any) -> Any:
        value = self._values.get(key)
        if value is not None:
            return value
        if default is None:
            raise UnsupportedModelError(
                f"{self._place} has no '{key}'; a model cannot be built without it{self._advice}"
            )
        return default
