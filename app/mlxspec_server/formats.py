"""The format that a request demands of its reply; it may be stated in one field only."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mlxspec.params import Grammar
from mlxspec_server.body import Body
from mlxspec_server.refusals import Refusal

_OBJECT = {"type": "object"}


def grammar_of(body: Body) -> Grammar | None:
    """Return the grammar of the reply; None if the request demands no format.

    Raises:
        Refusal: A format is unknown or unreadable, or a second one is stated.
    """
    found = list(_stated(body))
    if len(found) > 1:
        (first, _, _), (second, _, _) = found[:2]
        message = f"a reply fits one format: give {first} or {second}"
        raise Refusal(400, message, second.partition(".")[0])
    for place, make, value in found:
        try:
            return make(value)
        except (ValueError, RecursionError) as error:
            raise Refusal(400, f"{place}: {error}", place.partition(".")[0]) from error
    return None


def _stated(body: Body) -> Iterator[tuple[str, Callable[[Any], Grammar], Any]]:
    """Yield each field that states a format, its reader, and its value."""
    text, config = Body(body.object("text")), Body(body.object("output_config"))
    for place, format in (
        ("response_format", body.object("response_format")),
        ("text.format", text.object("format")),
        ("output_config.format", config.object("format")),
        ("output_format", body.object("output_format")),
    ):
        schema = _schema_of(place, format)
        if schema is not None:
            yield place, _of_schema, schema
    own = Body(body.object("structured_outputs"))
    own.refuse("structural_tag", "give json, regex, choice or grammar")
    for name, make in _READERS.items():
        for place, fields, key in (
            (f"guided_{name}", body, f"guided_{name}"),
            (f"structured_outputs.{name}", own, name),
        ):
            if key in fields and fields.get(key) is not False:
                yield place, make, fields.get(key)
    for place, name in (("json_schema", "json"), ("regex", "regex"), ("grammar", "grammar")):
        if place in body and body.get(place) != "":
            yield place, _READERS[name], body.get(place)


def _schema_of(place: str, format: Mapping[str, Any]) -> Any:
    """Return the JSON schema of a format; None for text.

    Raises:
        Refusal: The format is unknown, or has no schema.
    """
    kind = format.get("type", "text")
    if kind == "json_object":
        schema = format.get("schema")
        return _OBJECT if schema is None else schema
    if kind == "text" and not {"schema", "json_schema"} & format.keys():
        return None
    stated = format.get("json_schema", format) if kind == "json_schema" else None
    schema = stated.get("schema") if isinstance(stated, Mapping) else None
    if schema is None:
        allowed = "text, json_object, or json_schema with a schema"
        raise Refusal(400, f"{place} must be {allowed}", place.partition(".")[0])
    return schema


def _of_schema(schema: Any) -> Grammar:
    """Return the grammar of a schema: {} and true allow every JSON value."""
    if isinstance(schema, str):  # never the path of a file
        schema = json.loads(schema)
        if isinstance(schema, str):
            raise ValueError("the JSON schema must be an object of JSON, or true; got a text")
    return Grammar.json_schema(schema)


def _of_lark(source: Any) -> Grammar:
    if isinstance(source, str) and "::=" in source:
        raise ValueError("GBNF and EBNF are not read: give a grammar in Lark's syntax, or a schema")
    return Grammar.lark(source)


def _of_object(value: Any) -> Grammar:
    if value is not True:
        raise ValueError("it must be true or false")
    return Grammar.json_schema(_OBJECT)


_READERS: dict[str, Callable[[Any], Grammar]] = {
    "json": _of_schema,
    "json_object": _of_object,
    "regex": Grammar.regex,
    "choice": Grammar.choices,
    "grammar": _of_lark,
}
"""Readers of vLLM's kinds of format."""
