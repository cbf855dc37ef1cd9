"""What may follow: a function of the emitted tokens alone, whatever was looked at before."""

import random

import numpy as np
import pytest

from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.errors import GrammarError
from mlxspec.grammar import compiled
from mlxspec.grammar.compiled import Grammars
from mlxspec.grammar.constraint import Constraint
from mlxspec.params import GenerationParams, Grammar, SamplingParams
from mlxspec.text.reasoning import ChannelTracker, ReasoningMarks
from tests.grammar.test_compiled import ByteTokenizer
from tests.support.language import EndedTokenizer, Language
from tests.support.mask_walks import walked
from tests.support.pairwise import each_value
from tests.support.tiny import make_engine, tiny_model

LETTERS, LAST = 5, 4
WORDS = Language("(ab|ca|bbb)(cd|ad|[bd]d)(b?|aa)[a-d]?", 4, 7, end=LAST)
GRAMMARS = Grammars(EndedTokenizer(LETTERS))
OPEN, CLOSE = 20, 21
BORDERS = {(OPEN,): "reasoning", (CLOSE,): "answer"}
MARKS = ReasoningMarks("<t>", "</t>", BORDERS, (OPEN,), (CLOSE,))
END = 255  # no byte of UTF-8
BYTES = Grammars(ByteTokenizer())
NUMBER, NULL, TEXT = {"type": "integer"}, {"type": "null"}, {"type": "string"}


def record(required=(), **properties):
    return {"type": "object", "properties": properties, "required": list(required)}


def closed(required=(), **properties):
    return {**record(required, **properties), "additionalProperties": False}


def items(schema, **bounds):
    return {"type": "array", "items": schema, **bounds}


SCHEMAS = {
    "nulls or records": items(
        {"anyOf": [NULL, closed(["spriteId"], spriteId=NUMBER, targetX=NUMBER, targetY=NUMBER)]}
    ),
    "records that stay open": items(record(["id"], id=NUMBER, targetX=NUMBER, targetY=NUMBER)),
    "optional integers": closed(abA=NUMBER, abB=NUMBER, abC=NUMBER, abD=NUMBER),
    "optional numbers": closed(["x"], x={"type": "number"}, xx={"type": "number"}, xxx=NUMBER),
    "bounded integers": items({"type": "integer", "minimum": -12, "maximum": 345}, minItems=1),
    "bounded numbers": items({"type": "number", "exclusiveMinimum": 0, "maximum": 1.5}),
    "numbers or texts": items({"type": ["integer", "string", "null"]}),
    "names with one beginning": closed(target=TEXT, targets=items(NUMBER), targeted=NULL),
    "other names": {"type": "object", "additionalProperties": NUMBER},
    "named by a pattern": {
        "type": "object",
        "patternProperties": {"^x[0-9]+$": NUMBER},
        "additionalProperties": False,
    },
    "patterns": items({"type": "string", "pattern": "^([A-Z]{2}|[0-9]{3})-[a-z]*$"}),
    "bounded texts": items({"type": "string", "minLength": 2, "maxLength": 5}, maxItems=3),
    "dates or numbers": items({"anyOf": [{"type": "string", "format": "date"}, NUMBER]}),
    "tuples": {"type": "array", "prefixItems": [NUMBER, NULL, TEXT], "items": False},
    "keywords": closed(
        ["id", "code", "kind"],
        id={"type": "integer", "minimum": 10, "exclusiveMaximum": 200},
        share={"type": "number", "minimum": 0, "maximum": 1},
        code={"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$", "maxLength": 6},
        when={"type": "string", "format": "date"},
        kind={"enum": ["a", 1, None, True]},
        tags=items({"type": "string", "maxLength": 3}, maxItems=3),
        pair={"type": "array", "prefixItems": [{"const": 1}, NULL], "items": False},
    ),
    "choices": {
        "anyOf": [
            record(["t"], t={"const": "x"}),
            {"allOf": [NUMBER, {"minimum": 3}, {"maximum": 44}]},
            {"type": ["boolean", "null"]},
        ]
    },
    "records of two kinds": items(
        {"anyOf": [closed(["k"], k={"const": "a"}, v=NUMBER), closed(["k"], k={"const": "ab"})]}
    ),
    "all of two": {"allOf": [record(["a"], a=NUMBER), record(["b"], b=NUMBER)]},
    "trees": {
        "$ref": "#/$defs/n",
        "$defs": {"n": closed(["v"], v=NUMBER, next={"$ref": "#/$defs/n"}, nexts=NULL)},
    },
    "lists in lists": {
        "$ref": "#/$defs/n",
        "$defs": {"n": {"anyOf": [NUMBER, items({"$ref": "#/$defs/n"})]}},
    },
    "anything": True,
}


def constraint_of(grammar, end_tokens=(LAST,), marks=None, prompt=(0,), grammars=GRAMMARS):
    tokenizer = grammars.tokenizer
    channels = ChannelTracker(marks, list(prompt), tokenizer.token_bytes)
    matcher = grammars.matchers(grammar)
    return Constraint(matcher, tokenizer.vocab_size, end_tokens, channels)


@pytest.mark.parametrize("seed", range(6))
def test_what_may_follow_is_that_of_the_language_after_any_walk(seed):
    chance, said = random.Random(seed), ()
    constraint = constraint_of(Grammar.regex(WORDS.pattern))
    while WORDS.following(said):
        for _ in range(12):
            path = tuple(chance.randrange(LETTERS) for _ in range(chance.randrange(5)))
            followed = [(*said, *path[:n]) for n in range(len(path))]
            is_on = all(t in WORDS.following(b) for t, b in zip(path, followed, strict=True))
            after = constraint.allowed(path)
            assert (after is not None) == is_on
            if is_on:
                assert set(after.tokens()) == WORDS.following((*said, *path))
        token = chance.choice(sorted(WORDS.following(said)))
        constraint.read(token)
        said += (token,)
    assert constraint.is_complete or said[-1] == LAST


def test_an_end_token_is_allowed_where_the_text_may_end():
    endless = constraint_of(Grammar.regex("ab?"), end_tokens=())
    assert endless.forced_run(9) == (0, 1)
    assert endless.allowed((0, 1)).is_complete
    constraint = constraint_of(Grammar.regex("ab?"))
    assert constraint.forced_run(9) == (0,)
    assert constraint.allowed((0,)).tokens() == [1, LAST]
    assert constraint.allowed((0, LAST)).is_complete


def test_reasoning_is_free_and_the_answer_is_not():
    grammars = Grammars(EndedTokenizer(24))
    constraint = constraint_of(
        Grammar.regex("abc"), (23,), MARKS, prompt=(3, OPEN), grammars=grammars
    )
    assert constraint.allowed(()).count == 24
    assert constraint.forced_run(9) == ()
    assert constraint.allowed((7, 7, CLOSE)).forced == 0
    assert constraint.allowed((7, CLOSE, 1)) is None
    for token in (9, 0, CLOSE):
        constraint.read(token)
    assert constraint.forced_run(9) == (0, 1, 2)
    with pytest.raises(ValueError, match="forbids"):
        constraint.read(5)


def test_where_no_reasoning_was_opened_the_grammar_begins_at_once():
    grammars = Grammars(EndedTokenizer(24))
    constraint = constraint_of(Grammar.regex("abc"), (23,), MARKS, prompt=(3,), grammars=grammars)
    assert constraint.forced_run(9) == (0, 1, 2)
    assert np.count_nonzero(constraint.allowed(()).bits) == 1


@each_value(name=SCHEMAS, any_whitespace=[False, True])
def test_a_mask_is_that_of_a_fresh_matcher_after_any_walk(name, any_whitespace):
    grammar = Grammar.json_schema(SCHEMAS[name], any_whitespace=any_whitespace)
    found = [
        walked(BYTES, grammar, END, random.Random(seed), length=30, num_looks=5) for seed in (3, 5)
    ]
    assert sum(walk.masks for walk in found) > 9
    assert [walk.different for walk in found] == [[]] * 2


def test_a_branch_leaves_no_trace_in_the_mask_of_the_next_one():
    constraint = constraint_of(
        Grammar.json_schema(SCHEMAS["nulls or records"]), (END,), grammars=BYTES
    )
    for byte in b'[{"spriteId": 1, "':
        constraint.read(byte)
    for branch in (b'targetY": ', b'targetX": 3', b'targetY": 37'):
        allowed = constraint.allowed(tuple(branch)).tokens()
    assert bytes(allowed) == b"0123456789}"  # both names are taken: no comma


# ---- masks that cannot be found ----------------------------------------------------------------

COSTLY = Grammar.regex(r"x(.*\w.{3,40}){5,20}|y[a-z]{3}")  # what may follow an x is


@pytest.fixture
def grammars(monkeypatch):
    monkeypatch.setitem(compiled._LIMITS, "step_lexer_fuel", 500)
    return Grammars(ByteTokenizer())


def test_a_branch_that_is_too_costly_takes_nothing_from_the_others(grammars):
    grammar = Grammar.regex(f"ab({COSTLY.source})")
    constraint = constraint_of(grammar, (END,), grammars=grammars)
    other = constraint_of(grammar, (END,), grammars=grammars)  # of another reply
    for byte in b"ab":
        constraint.read(byte)
    assert constraint.allowed(tuple(b"x")).tokens() == []
    assert constraint.allowed(tuple(b"yab")).count == 26
    assert other.allowed(tuple(b"abyab")).count == 26
    for byte in b"yabc":
        constraint.read(byte)
    assert constraint.is_complete


def test_a_text_that_becomes_too_costly_ends_with_an_error_that_says_so(grammars):
    constraint = constraint_of(COSTLY, (END,), grammars=grammars)
    with pytest.raises(GrammarError, match=r"too costly to find \(lexer error"):
        constraint.read(ord("x"))


def test_a_grammar_serves_the_next_reply_after_one_that_it_ended(grammars):
    with pytest.raises(GrammarError):
        constraint_of(COSTLY, (END,), grammars=grammars).read(ord("x"))
    constraint = constraint_of(COSTLY, (END,), grammars=grammars)
    assert sorted(map(chr, constraint.allowed(()).tokens())) == ["x", "y"]


def test_a_text_that_no_token_continues_ends_with_an_error_that_says_so():
    engine = make_engine(tiny_model(), SuffixDrafter())  # its tokens are letters up to x
    params = GenerationParams(
        grammar=Grammar.regex("(a|b)(cz|d)(e|f)"), sampling=SamplingParams(logit_bias={2: 100.0})
    )
    with pytest.raises(GrammarError, match="no token of this model continues the text"):
        list(engine.generate([1, 2], params))


@pytest.mark.parametrize("drafter", [NoDrafter, SuffixDrafter])
def test_a_grammar_whose_first_choice_is_never_reached_is_refused_at_once(drafter):
    engine = make_engine(tiny_model(), drafter())
    with pytest.raises(ValueError, match="no text of this model's tokens"):
        engine.generate([1, 2], GenerationParams(grammar=Grammar.regex("abcz(d|e)")))
    assert engine.target.history == ()
