"""The body of a request: JSON of limited size, with type-checked fields."""

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from starlette.requests import Request

from mlxspec_server.refusals import Refusal

_HALF = re.compile(rb"\\u[dD][89a-fA-F]")  # half a surrogate pair; matches complete pairs too


async def received_body(request: Request, most: int) -> bytes:
    """Return the bytes of the body of a request, which must be declared as JSON.

    A web page of another origin cannot declare JSON without a preflight request.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(415, f"the body must be application/json; got {kind or 'no content-type'}")
    received = bytearray()
    async for chunk in request.stream():
        received += chunk
        if len(received) > most:
            raise Refusal(413, f"the body may have {most:,} bytes: send less")
    return bytes(received)


class Body:
    """The fields of a request; null counts as absent."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = {name: value for name, value in fields.items() if value is not None}

    @staticmethod
    def of(received: bytes) -> "Body":
        """Return the fields of a body; a large body takes some tenths of a second."""
        try:
            found = json.loads(str(received, "utf-8-sig"), parse_constant=_no_number)
            if isinstance(found, dict) and _HALF.search(received):
                _refuse_halves(found)
        except RecursionError as error:
            raise Refusal(400, "the body is nested too deep") from error
        except ValueError as error:
            message = f"the body is no JSON that can be read: {str(error)[:200]}"
            raise Refusal(400, message) from error
        if not isinstance(found, dict):
            raise Refusal(400, "the body must be a JSON object")
        return Body(found)

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def get(self, name: str) -> Any:
        """Return a field unchecked, or None."""
        return self._fields.get(name)

    def first(self, *names: str) -> str:
        """Return the first of these names that is present; the last one if none is."""
        return next((name for name in names if name in self), names[-1])

    def text(self, name: str, default: str = "") -> str:
        return str(self._typed(name, default, str, "a text"))

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        """Return an integer between `least` and `most`."""
        value = self._typed(name, default, int, "a whole number")
        if not least <= value <= most:
            raise Refusal(400, f"{name} must be from {least} to {most}; got {_cut(value)}", name)
        return int(value)

    def is_on(self, name: str, default: bool = False) -> bool:
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise Refusal(400, f"{name} must be true or false; got {_cut(value)}", name)
        return default if value is None else value

    def object(self, name: str) -> Mapping[str, Any]:
        """Return an object; {} if absent."""
        value: Mapping[str, Any] = self._typed(name, {}, dict, "an object")
        return value

    def part(self, name: str) -> "Body":
        """Return the fields of an object."""
        return Body(self.object(name))

    def items(self, name: str) -> list[Any]:
        """Return a list; [] if absent."""
        value: list[Any] = self._typed(name, [], list, "a list")
        return value

    def refuse(self, name: str, instead: str, *, allowed: tuple[Any, ...] = ()) -> None:
        """Refuse a field that the server does not support, unless its value is allowed."""
        if name in self and self.get(name) not in allowed:
            raise Refusal(400, f"{name} is not supported: {instead}", name)

    def _typed(self, name: str, default: Any, kind: type, words: str) -> Any:
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, kind) or isinstance(value, bool):
            raise Refusal(400, f"{name} must be {words}; got {_cut(value)}", name)
        return value


def _cut(value: object) -> str:
    return (str(value) if isinstance(value, int) else json.dumps(value, default=str))[:40]


def _refuse_halves(found: Mapping[str, Any]) -> None:
    """Refuse texts with a lone surrogate, which no reply or refusal could write back."""
    for name, value in found.items():
        try:
            json.dumps([name, value], ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            shown = ascii(name)[1:-1][:60]
            message = f"{shown} is not UTF-8: it has half a character; send whole ones"
            raise Refusal(400, message, shown) from error


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")
