"""Finds a JSON schema that no finite text fits: a recursion through required parts.

A value is finite if all of its required parts are. The finite definitions are the least fixed point
of this rule: at first no definition is finite, and each pass over the schema adds those whose parts
are.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

_MAX_PASSES = 100


def endless_place(schema: Any) -> str:
    """Return the JSON pointer of the reference that makes a schema endless; else ""."""
    finite = _Finite(schema)
    for _ in range(_MAX_PASSES):
        before = len(finite.known)
        finite.seen = set()
        if finite.has(schema):
            return ""
        if len(finite.known) == before:
            return finite.last
    return ""  # too large to decide: max_tokens ends the reply


class _Finite:
    """The references of a schema that lead to a finite value."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self.known: set[str] = set()
        self.seen: set[str] = set()  # in this pass
        self.last = "#"  # the last reference that was found endless

    def has(self, schema: Any) -> bool:
        """Return whether a schema is known to have a finite value."""
        if not isinstance(schema, dict) or "const" in schema or "enum" in schema:
            return True
        if "$ref" in schema and not self._has_reference(schema["$ref"]):
            return False
        for name, needed in (("anyOf", any), ("oneOf", any), ("allOf", all)):
            parts = schema.get(name)
            if isinstance(parts, list) and parts and not needed([self.has(p) for p in parts]):
                return False
        return all(map(self.has, _required(schema)))

    def _has_reference(self, reference: Any) -> bool:
        if reference in self.known or not str(reference).startswith("#"):
            return True
        # Once per pass: a chain of references would double otherwise.
        if reference not in self.seen:
            self.seen.add(reference)
            if self.has(self._found(reference)):
                self.known.add(reference)
                return True
        self.last = reference
        return False

    def _found(self, reference: str) -> Any:
        found = self._root
        for part in unquote(reference).split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list):
                found = found[int(name)] if name.isdigit() and int(name) < len(found) else None
            else:
                found = found.get(name) if isinstance(found, dict) else None
        return found


def _required(schema: dict[str, Any]) -> Sequence[Any]:
    """Return the parts that every value of a schema has; none if it may be of several types."""
    properties = schema.get("properties", {})
    types = schema.get("type", "object" if "properties" in schema else None)
    match types:
        case "array" | ["array"]:
            least, first = schema.get("minItems", 0), schema.get("prefixItems", [])
            return [*first[:least], *([schema.get("items")] if least > len(first) else [])]
        case "object" | ["object"]:
            return [properties.get(name) for name in schema.get("required", ())]
    return ()
