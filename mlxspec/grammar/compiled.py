"""Grammars of one model, compiled: a matcher for each, or a refusal that names the place.

The library bounds its own work; the limits here make that a second or two at most, whatever the
grammar. A schema that no finite text fits would be written for ever, so it is refused as well.
"""

import json
from collections.abc import Iterator
from threading import Lock
from typing import Any

import numpy as np

from mlxspec.grammar.finite import endless_place
from mlxspec.grammar.vocabulary import Vocabulary, library
from mlxspec.params.grammar import Grammar
from mlxspec.tokenizer import Tokenizer

_MAX_COMPILED = 8  # kept, so that many replies with one grammar compile it once
_MAX_PARTS = 400  # of a refused schema that are tried to find the place
_LIMITS: dict[str, Any] = {
    "initial_lexer_fuel": 100_000,
    "max_grammar_size": 200_000,
    "verbose_errors": False,
}
_MAPS_OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMAS = ("items", "additionalProperties", "not", "if", "then", "else", "contains")


class Grammars:
    """Compiles grammars for the tokens of one model.

    Attributes:
        tokenizer: The tokenizer of the model.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Prepare; the tokenizer is read at the first grammar.

        Args:
            tokenizer: The model's tokenizer.
        """
        self.tokenizer = tokenizer
        self._vocabulary: Vocabulary | None = None
        self._compiled: dict[Grammar, Any] = {}
        self._lock = Lock()

    def matcher(self, grammar: Grammar | None) -> Any:
        """Return a new matcher of llguidance at the begin of a text; None for no grammar.

        Several threads may call it; they compile one after the other.

        Raises:
            ValueError: The grammar cannot be served; the message names the place.
            UnsupportedOperationError: llguidance is not installed, or cannot read the tokenizer.
        """
        if grammar is None:
            return None
        with self._lock:
            if grammar not in self._compiled:
                matcher = self._compile(grammar)
                while len(self._compiled) >= _MAX_COMPILED:
                    del self._compiled[next(iter(self._compiled))]
                self._compiled[grammar] = matcher
            return self._compiled[grammar].deep_copy()

    def _compile(self, grammar: Grammar) -> Any:
        matcher, fault = self._tried(grammar)
        if fault:
            raise ValueError(f"{_named(grammar)} cannot be served: {self._placed(grammar, fault)}")
        if grammar.kind == "json-schema" and (place := endless_place(json.loads(grammar.source))):
            raise ValueError(
                f"{_named(grammar)} cannot be served: no finite text fits {place}; give its "
                "recursion an end, such as a property that is not required"
            )
        return matcher

    def _tried(self, grammar: Grammar) -> tuple[Any, str]:
        """Return a matcher, and its fault or ""."""
        llguidance = library()
        if self._vocabulary is None:
            self._vocabulary = Vocabulary(self.tokenizer)
        limits = llguidance.LLParserLimits(**_LIMITS)
        try:
            source = _source(llguidance.LLMatcher, grammar)
        except ValueError as error:
            return None, _first_line(str(error))
        matcher = llguidance.LLMatcher(self._vocabulary.reader, source, limits=limits, log_level=0)
        mask = matcher.compute_bitmask()  # an error shows there at the latest
        bits = np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")
        if matcher.is_error():
            return None, _first_line(matcher.get_error())
        if not bits[: self.tokenizer.vocab_size + 1].any():
            return None, "no text of this model's tokens fits it"
        return matcher, ""

    def _placed(self, grammar: Grammar, fault: str) -> str:
        """Return the fault with the place of the deepest part of a schema that has it alone."""
        part, place = json.loads(grammar.source) if grammar.kind == "json-schema" else None, "#"
        if not isinstance(part, dict):
            return fault
        shared = {name: part[name] for name in ("$defs", "definitions") if name in part}
        waiting, num_left = list(_parts(part)), _MAX_PARTS
        while waiting and num_left:
            (name, part), *waiting = waiting
            num_left -= 1
            alone = Grammar("json-schema", json.dumps({**shared, **part}), grammar.any_whitespace)
            if self._tried(alone)[1] == fault:  # the fault is in here: nothing beside it matters
                place, waiting = f"{place}/{name}", list(_parts(part))
        return f"{fault} (in {place})"


def _source(matcher: Any, grammar: Grammar) -> str:
    if grammar.kind == "regex":
        return str(matcher.grammar_from_regex(grammar.source))
    if grammar.kind == "lark":
        return str(matcher.grammar_from_lark(grammar.source))
    spaces = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}
    options = {"whitespace_flexible": True} if grammar.any_whitespace else spaces
    return str(matcher.grammar_from_json_schema(grammar.source, overrides=options))


def _parts(schema: object) -> Iterator[tuple[str, dict[str, Any]]]:
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


def _named(grammar: Grammar) -> str:
    kinds = {"json-schema": "the JSON schema", "regex": "the regular expression"}
    return kinds.get(grammar.kind, "the grammar")


def _first_line(error: str) -> str:
    """Return an error of llguidance in one line."""
    lines = [" ".join(line.split()) for line in error.splitlines()]
    return (
        "; ".join(line for line in lines if line and line != "<non-verbose/>")[:300] or "too large"
    )
