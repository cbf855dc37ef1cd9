"""What a reply has to fit: a JSON schema, a regular expression, a Lark grammar, a list of choices.

These are plain values. Whether one can be served is found out where the tokenizer is known
(`mlxspec.grammar`); here only what no library could read is refused.
"""

import json
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation, Overflow
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

from mlxspec.files import NotTextError, read_text
from mlxspec.params.checks import flag, is_list, text, wrong_type

GrammarKind = Literal["json-schema", "regex", "lark"]

MAX_LENGTH = 1_000_000
"""Characters of a grammar: real schemas have some thousand, and compiling takes time and memory."""

MAX_DEPTH = 64

MAX_MULTIPLE = 100_000
"""The largest common multiple of all `multipleOf`: each remainder is a state of the grammar."""

NO_GRAMMAR = "-"
"""What a person types for no grammar."""

_MULTIPLE_OF = re.compile(r'"multipleOf"\s*:\s*([-+.0-9eE]+)')
_MERGES = ('"allOf"', '"$ref"')  # two schemas of one number, whose decimals then count together
_MAX_VALUES = 100_000
_MAPS_OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_SCHEMAS = ("items", "additionalProperties", "not", "if", "then", "else", "contains")
_KEPT_FORMATS = frozenset(
    ("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid")
)
_ALLOWED = (
    "a JSON schema (a dict, a pydantic model or the path of a file), or a Grammar, such as "
    "Grammar.regex('[0-9]+')"
)


@dataclass(frozen=True)
class Grammar:
    """A set of texts, one of which a reply has to be.

    Of a JSON schema, `any_whitespace` says whether any white space may stand between two signs. If
    not, the text is the one that `json.dumps` writes: a space after each comma and colon.
    """

    kind: GrammarKind
    source: str  # the JSON text of a schema, a regular expression or a grammar
    any_whitespace: bool = False
    unchecked: tuple[str, ...] = ()  # formats of a schema that no text is made to have

    def __str__(self) -> str:
        return self.source

    def __post_init__(self) -> None:
        text("the grammar", self.source)
        flag("any_whitespace", self.any_whitespace)
        if not self.source:
            raise ValueError("the grammar is empty: give a text, or no grammar")
        if len(self.source) > MAX_LENGTH:
            raise ValueError(
                f"the grammar has {len(self.source)} characters; allowed are {MAX_LENGTH}: "
                "give a smaller one"
            )
        if not _is_countable(self.source):
            raise ValueError(
                "the values of multipleOf have a common multiple of more than "
                f"{MAX_MULTIPLE} (decimal points left out): give smaller ones"
            )

    @classmethod
    def json_schema(cls, schema: object, *, any_whitespace: bool = False) -> "Grammar":
        """Return the grammar of the JSON texts that are valid under a schema.

        Args:
            schema: A dict, True, a pydantic model class, the path of a file, or a JSON text.
            any_whitespace: See `any_whitespace` of the class. A model then chooses how to indent,
                and fewer tokens are forced.

        Raises:
            ValueError: It is no JSON schema, nested too deeply or too large, or the file cannot be
                read.
        """
        value = _schema_value(schema)
        if value is not True and not isinstance(value, dict):
            raise wrong_type("a JSON schema", "an object of JSON, or true", value)
        try:
            _check_size(value)
            value = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise ValueError(f"the JSON schema cannot be read: {error}") from error
        unchecked = tuple(drop_formats(value))  # the caller keeps them in his own
        return cls("json-schema", json.dumps(value), any_whitespace, unchecked)

    @classmethod
    def regex(cls, pattern: str) -> "Grammar":
        """Return the grammar of the texts that a regular expression matches as a whole.

        Its syntax is that of Rust's regex crate: no look-around, no back-references.
        """
        return cls("regex", text("a regular expression", pattern))

    @classmethod
    def lark(cls, source: str) -> "Grammar":
        """Return a context-free grammar in Lark's syntax, as llguidance reads it."""
        return cls("lark", text("a Lark grammar", source))

    @classmethod
    def choices(cls, texts: Sequence[str]) -> "Grammar":
        """Return the grammar of a few texts, none of them empty."""
        if not is_list(texts) or not texts or not all(isinstance(t, str) and t for t in texts):
            raise wrong_type("choices", "a list of texts, none of them empty", texts)
        return cls("regex", "|".join(map(escaped, texts)))


def grammar_of(name: str, value: object) -> Grammar | None:
    """Return the grammar of a setting; a JSON schema is allowed in place of a `Grammar`.

    `value` is a `Grammar`, what `Grammar.json_schema` takes, or "-" for none.
    """
    if isinstance(value, str) and value == NO_GRAMMAR:  # an array has no one answer to ==
        return None
    if isinstance(value, Grammar):
        return value
    if not (isinstance(value, Mapping | PathLike | str) or _pydantic_schema(value)):
        raise wrong_type(name, _ALLOWED, value)
    try:
        grammar = Grammar.json_schema(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    if grammar.unchecked:
        formats = ", ".join(map(repr, grammar.unchecked))
        warnings.warn(f"{name}: no text is made to have the format {formats}", stacklevel=2)
    return grammar


def _is_countable(source: str) -> bool:
    """Return whether the remainders of all `multipleOf` are few enough to be told apart."""
    plain = re.sub(r"\\u00([0-9a-fA-F]{2})", lambda found: chr(int(found[1], 16)), source)
    try:
        numbers = [abs(Decimal(number)).normalize() for number in _MULTIPLE_OF.findall(plain)]
    except InvalidOperation:
        return True  # no number: the library says so
    except Overflow:
        return False
    exponents = [int(number.as_tuple().exponent) for number in numbers]
    if any(not -400 < exponent < 400 for exponent in exponents):
        return False
    least = min(exponents) if any(name in plain for name in _MERGES) and exponents else 0
    pairs = zip(numbers, exponents, strict=True)
    return math.lcm(*(int(one.scaleb(-min(own, least))) for one, own in pairs)) <= MAX_MULTIPLE


def escaped(text: str) -> str:
    """Return a text escaped for a regular expression, also between slashes."""
    return "".join(char if char.isalnum() else f"\\x{{{ord(char):x}}}" for char in text)


def _pydantic_schema(model: object) -> Callable[[], Any] | None:
    method = getattr(model, "model_json_schema", None) if isinstance(model, type) else None
    return method if callable(method) else None


def _schema_value(schema: object) -> Any:
    if make := _pydantic_schema(schema):
        return make()
    if isinstance(schema, PathLike):
        return _read(Path(fspath(schema)))
    if isinstance(schema, str):
        is_json = schema.lstrip()[:1] == "{"
        return _parsed(schema, "the JSON schema") if is_json else _read(Path(schema))
    return dict(schema) if isinstance(schema, Mapping) else schema


def _read(path: Path) -> Any:
    try:
        return _parsed(read_text(path, most_bytes=4 * MAX_LENGTH), str(path))
    except OSError as error:
        raise ValueError(f"cannot read the schema file {path}: {error.strerror}") from error
    except NotTextError as error:
        raise ValueError(f"the schema file {path} is {error}") from error


def _parsed(source: str, name: str) -> Any:
    if len(source) > MAX_LENGTH:
        raise ValueError(f"{name} has more than {MAX_LENGTH} characters: give a smaller schema")
    try:
        return json.loads(source)
    except json.JSONDecodeError as error:
        raise ValueError(f"{name} is not JSON: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{name} is nested too deeply: at most {MAX_DEPTH} levels") from error


def _check_size(schema: object) -> None:
    """Raise ValueError for what a reader of schemas cannot bear; shared values count each time."""
    level, num_values = [schema], 1
    for _ in range(MAX_DEPTH + 1):
        holders = [value for value in level if isinstance(value, dict | list | tuple)]
        num_values += sum(map(len, holders))
        if num_values > _MAX_VALUES:
            raise ValueError(f"it has more than {_MAX_VALUES} values")
        objects = [value for value in holders if isinstance(value, dict)]
        names = [name for value in objects for name in value if not isinstance(name, str)]
        if names:
            raise ValueError(f"it has a name that is not a text: {names[0]!r:.60}")
        level = [
            inner
            for value in holders
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
    if level:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")


# ---- the schemas inside a JSON schema ----------------------------------------------------------


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

    What is named "format" elsewhere, such as a property, stays.
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
