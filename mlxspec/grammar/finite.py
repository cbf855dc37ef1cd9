"""Finds a JSON schema that no finite text fits: a recursion through required parts.

A value is finite if all of its required parts are. The finite definitions are the least fixed point
of this rule: at first no definition is finite, and each pass over the schema adds those whose parts
are.
"""

from typing import Any
from urllib.parse import unquote

_MAX_PASSES = 100


def endless_place(schema: Any) -> str:
    """Return the JSON pointer of the reference that makes a schema endless; else ""."""
    finite = _Finite(schema)
    return "" if finite.settled() else finite.last


class _Finite:
    """The references of a schema that lead to a finite value.

    `last` is the last reference that was found endless.
    """

    def __init__(self, schema: Any) -> None:
        self.last = "#"
        self._root = schema
        self._known: set[str] = set()
        self._seen: set[str] = set()  # in this pass

    def settled(self) -> bool:
        """Return whether the whole schema has a finite value."""
        for _ in range(_MAX_PASSES):
            before = len(self._known)
            self._seen = set()
            if self._of(self._root):
                return True
            if len(self._known) == before:
                return False
        return True  # too large to decide: max_tokens ends the reply

    def _of(self, schema: Any) -> bool:
        if not isinstance(schema, dict) or "const" in schema or "enum" in schema:
            return True
        if "$ref" in schema and not self._of_reference(schema["$ref"]):
            return False
        for name, needed in (("anyOf", any), ("oneOf", any), ("allOf", all)):
            parts = schema.get(name)
            if isinstance(parts, list) and parts and not needed([self._of(p) for p in parts]):
                return False
        types = schema.get("type", "object" if "properties" in schema else None)
        if isinstance(types, list):  # another type needs none of the following
            types = types[0] if len(types) == 1 else None
        if types == "array":
            return self._of_array(schema)
        return types != "object" or self._of_object(schema)

    def _of_object(self, schema: dict[str, Any]) -> bool:
        properties, required = schema.get("properties", {}), schema.get("required", ())
        return all(self._of(properties.get(name)) for name in required)

    def _of_array(self, schema: dict[str, Any]) -> bool:
        least, first = schema.get("minItems", 0), schema.get("prefixItems", [])
        needed = [*first[:least], *([schema.get("items")] if least > len(first) else [])]
        return all(self._of(item) for item in needed)

    def _of_reference(self, reference: Any) -> bool:
        if reference in self._known or not str(reference).startswith("#"):
            return True
        # Once per pass: a chain of references would double otherwise.
        if reference not in self._seen:
            self._seen.add(reference)
            if self._of(self._found(reference)):
                self._known.add(reference)
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
