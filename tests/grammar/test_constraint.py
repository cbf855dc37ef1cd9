"""What may follow: a function of the emitted tokens alone, whatever was looked at before."""

import random

import numpy as np
import pytest

from mlxspec.grammar.compiled import Grammars
from mlxspec.grammar.constraint import Constraint
from mlxspec.params import Grammar
from mlxspec.text.reasoning import ChannelTracker, ReasoningMarks
from tests.support.language import EndedTokenizer, Language

VOCAB, END = 5, 4
WORDS = Language("(ab|ca|bbb)(cd|ad|[bd]d)(b?|aa)[a-d]?", 4, 7, end=END)
TOKENIZER = EndedTokenizer(VOCAB)
GRAMMARS = Grammars(TOKENIZER)
OPEN, CLOSE = 20, 21
MARKS = ReasoningMarks("<t>", "</t>", {(OPEN,): "reasoning", (CLOSE,): "answer"}, (OPEN,))


def constraint_of(grammar, end_tokens=(END,), marks=None, prompt=(0,), grammars=GRAMMARS):
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
            path = tuple(chance.randrange(VOCAB) for _ in range(chance.randrange(5)))
            followed = [(*said, *path[:n]) for n in range(len(path))]
            is_on = all(t in WORDS.following(b) for t, b in zip(path, followed, strict=True))
            after = constraint.allowed(path)
            assert (after is not None) == is_on
            if is_on:
                assert set(after.tokens()) == WORDS.following((*said, *path))
        token = chance.choice(sorted(WORDS.following(said)))
        constraint.read(token)
        said += (token,)
    assert constraint.is_complete or said[-1] == END


def test_without_end_tokens_a_text_goes_on_as_long_as_it_may():
    constraint = constraint_of(Grammar.regex("ab?"), end_tokens=())
    assert constraint.forced_run(9) == (0, 1)
    assert constraint.allowed((0, 1)).is_complete


def test_an_end_token_is_allowed_where_the_text_may_end():
    constraint = constraint_of(Grammar.regex("ab?"))
    assert constraint.forced_run(9) == (0,)
    assert constraint.allowed((0,)).tokens() == [1, END]
    assert constraint.allowed((0, END)).is_complete


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
