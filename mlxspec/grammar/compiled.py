"""Grammars of one model, compiled: a matcher for each, or an error that names the position.

The library, llguidance, bounds its own work; the limits here reduce that to a second or two at
most, for any grammar. A schema that no finite text fits would never end, so it is refused as well.
"""

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import Any

import numpy as np

from mlxspec.errors import UnsupportedOperationError
from mlxspec.grammar.constraint import first_line, mask_of
from mlxspec.grammar.finite import endless_place
from mlxspec.params.grammar import Grammar, parts_of
from mlxspec.text.tokenizer import Tokenizer

_MAX_COMPILED = 8  # stored, so that many replies with one grammar compile it once
_MOST_FORCED = 256  # tokens at the start of a text, each with a mask
_MAX_PLACE_S = 2.0  # limit for trying parts of a refused schema to find the faulty position
_END = "<|the grammar may end here|>"  # a token after the model's; replies say which of these end
_SPECIAL = b"\xff"  # starts a token that is not text
_LIMITS: dict[str, Any] = {
    "initial_lexer_fuel": 100_000,
    "max_grammar_size": 200_000,
    "verbose_errors": False,
}


class Grammars:
    """Compiles grammars for the tokens of one model."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Prepare; the first grammar reads the tokenizer, which takes some tenths of a second."""
        self.tokenizer = tokenizer
        self._reader: Any = None  # the tokenizer of llguidance
        self._compiled: dict[Grammar, Any] = {}
        self._lock = Lock()

    def matchers(self, grammar: Grammar | None) -> Callable[[], Any] | None:
        """Compile a grammar; return a function that makes new matchers, or None for no grammar.

        A copy of a compiled matcher costs nothing, but is of no use once their lexer has stopped.
        """
        if grammar is None:
            return None
        first = self.matcher(grammar)
        return lambda: self.matcher(grammar) if _has_stopped(first) else first.deep_copy()

    def matcher(self, grammar: Grammar) -> Any:
        """Return a new matcher of llguidance at the start of a text.

        Several threads may call it, and none waits while another one compiles. All matchers of a
        grammar share a lexer until it stops in one of them; the next one has a new lexer. Raises
        ValueError for a grammar that cannot be served, and UnsupportedOperationError if llguidance
        is not installed or cannot read the tokenizer.
        """
        compiled = self._compiled.get(grammar)
        if compiled is None or _has_stopped(compiled):
            compiled = self._compile(grammar)
            with self._lock:
                self._compiled.pop(grammar, None)
                while len(self._compiled) >= _MAX_COMPILED:
                    del self._compiled[next(iter(self._compiled))]
                self._compiled[grammar] = compiled
        return compiled.deep_copy()

    def _compile(self, grammar: Grammar) -> Any:
        matcher, fault = self._tried(grammar)
        is_schema = matcher is not None and grammar.kind == "json-schema"
        if is_schema and (place := endless_place(json.loads(grammar.source))):
            raise ValueError(
                f"{_named(grammar)} cannot be served: no finite text fits {place}; give its "
                "recursion an end, such as a property that is not required"
            )
        if fault:
            raise ValueError(f"{_named(grammar)} cannot be served: {self._placed(grammar, fault)}")
        return matcher

    def _tried(self, grammar: Grammar) -> tuple[Any, str]:
        """Return a matcher, or None if the grammar is invalid, and its fault or ""."""
        llguidance = _library()
        with self._lock:
            if self._reader is None:
                self._reader = _reader(llguidance, self.tokenizer)
        limits = llguidance.LLParserLimits(**_LIMITS)
        try:
            source = _source(llguidance.LLMatcher, grammar)
        except ValueError as error:
            return None, first_line(str(error))
        matcher = llguidance.LLMatcher(self._reader, source, limits=limits, log_level=0)
        if matcher.is_error():
            return None, first_line(matcher.get_error())
        return matcher, self._fault_at_begin(matcher.deep_copy())

    def _fault_at_begin(self, matcher: Any) -> str:
        """Return what is wrong with the first masks, up to the first choice, or ""."""
        end = self.tokenizer.vocab_size
        for _ in range(_MOST_FORCED):
            bits, fault = mask_of(matcher)
            allowed = np.flatnonzero(bits[: end + 1])
            if fault or not len(allowed):
                return fault or "no text of this model's tokens fits it"
            if len(allowed) > 1 or allowed[0] == end:
                break
            matcher.consume_token(int(allowed[0]))
        return ""

    def _placed(self, grammar: Grammar, fault: str) -> str:
        """Return the fault with the position of the deepest part of a schema that causes it."""
        part, place = json.loads(grammar.source) if grammar.kind == "json-schema" else None, "#"
        if not isinstance(part, dict):
            return fault
        shared = {name: part[name] for name in ("$defs", "definitions") if name in part}
        waiting, end_s = list(parts_of(part)), time.monotonic() + _MAX_PLACE_S
        while waiting and time.monotonic() < end_s:
            (name, part), *waiting = waiting
            alone = Grammar("json-schema", json.dumps({**shared, **part}), grammar.any_whitespace)
            # The fault is in this part, so the others do not matter.
            if self._tried(alone)[1] == fault:
                place, waiting = f"{place}/{name}", list(parts_of(part))
        return f"{fault} (in {place})"


def _has_stopped(compiled: Any) -> bool:
    """Return whether the lexer of a matcher has stopped; a cached mask would hide it."""
    return bool(mask_of(compiled.deep_copy())[1])


def _source(matcher: Any, grammar: Grammar) -> str:
    if grammar.kind == "regex":
        return str(matcher.grammar_from_regex(grammar.source))
    if grammar.kind == "lark":
        return str(matcher.grammar_from_lark(grammar.source))
    schema = "{}" if grammar.source == "true" else grammar.source  # only objects accept options
    spaces = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}
    options = {"whitespace_flexible": True} if grammar.any_whitespace else spaces
    return str(matcher.grammar_from_json_schema(schema, overrides=options))


def _named(grammar: Grammar) -> str:
    kinds = {"json-schema": "the JSON schema", "regex": "the regular expression"}
    return kinds.get(grammar.kind, "the grammar")


def _library() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise UnsupportedOperationError(
            "a reply under a grammar needs the package llguidance, which is not installed: "
            "pip install 'mlxspec[grammar]'"
        ) from error
    return llguidance


def _reader(llguidance: Any, tokenizer: Tokenizer) -> Any:
    """Return all tokens of a tokenizer, and one more for the end, as llguidance reads them."""
    try:
        source = llguidance.TokenizerWrapper(_Bytes(tokenizer))
        return llguidance.LLTokenizer(source, eos_token=[tokenizer.vocab_size])
    except ValueError as error:
        raise UnsupportedOperationError(
            f"this model's tokenizer serves no grammar: {error}; choose another model"
        ) from error


class _Bytes:
    """A tokenizer in the form that llguidance accepts, by the bytes of its tokens.

    From a tokenizer.json it would read the letters of added tokens as codes of bytes.
    """

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.eos_token_id = tokenizer.vocab_size
        texts = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]
        self.special_token_ids = [token for token, text in enumerate(texts) if not text]
        self.special_token_ids.append(self.eos_token_id)
        for name, token in tokenizer.special.items():
            texts[token] = _SPECIAL + name.encode()  # so that a grammar can name it
        self.tokens = [*texts, _SPECIAL + _END.encode()]
        self._encode = partial(tokenizer.encode, add_special_tokens=False)
        adds_space = tokenizer.decode(self._encode("a")).startswith(" ")
        self._begin = "\x02" if adds_space else ""  # no token joins it with the text after it
        self._num_begin = len(self._encode(self._begin))

    def __call__(self, text: str | bytes) -> Sequence[int]:
        whole = text.decode() if isinstance(text, bytes) else text
        return self._encode(self._begin + whole)[self._num_begin :]
