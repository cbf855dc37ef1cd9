"""The schemas inside a JSON schema, and the formats in them that only describe a text."""

from collections.abc import Iterator
from typing import Any

_MAPS_OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_SCHEMAS = ("items", "additionalProperties", "not", "if", "then", "else", "contains")
_KEPT_FORMATS = frozenset(
    ("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid")
)


def parts_of(schema: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the schemas directly inside a schema, with their names in it."""
    if not isinstance(schema, dict):
        return
    found = [(name, schema.get(name)) for name in _SCHEMAS]
    for name in _MAPS_OF_SCHEMAS:
        inner = schema.get(name)
        if isinstance(inner, dict):
            found += [(f"{name}/{key}", value) for key, value in inner.items()]
    for name in _LISTS_OF_SCHEMAS:
        items = schema.get(name)
        if isinstance(items, list):
            found += [(f"{name}/{index}", value) for index, value in enumerate(items)]
    yield from ((name, value) for name, value in found if isinstance(value, dict))


def drop_formats(schema: object) -> list[str]:
    """Take the formats out of a schema that no text is made to have; return them in order.

    A format describes a text and need not be checked. What is named "format" elsewhere, such as a
    property, stays.
    """
    dropped, waiting = set[str](), [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            name = part.get("format")
            if isinstance(name, str) and name not in _KEPT_FORMATS:
                dropped.add(part.pop("format"))
            waiting += [inner for _, inner in parts_of(part)]
    return sorted(dropped)
