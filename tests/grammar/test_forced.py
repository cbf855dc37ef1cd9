"""Forced tokens: where they stand, what they cost, and that no figure of drafts counts them."""

import re

import mlx.core as mx
import pytest

from mlxspec.drafters.grammar import GrammarDrafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.drafts.tree import DraftTree
from mlxspec.grammar.compiled import Grammars
from mlxspec.grammar.constraint import Constraint
from mlxspec.params import GenerationParams, Grammar, SamplingParams
from mlxspec.text.reasoning import ChannelTracker
from mlxspec.trace.events import DrafterFailed
from mlxspec.trace.stats import FORCED
from tests.support.adversaries import Adversary
from tests.support.language import EndedTokenizer, Language
from tests.support.tiny import emitted, make_engine, tiny_model

PROMPT = [3, 7, 1]
WORD = "abcdefgh"


def reply(grammar, drafter=None, **settings):
    engine = make_engine(tiny_model(), drafter or NoDrafter())
    return list(engine.generate(PROMPT, GenerationParams(grammar=grammar, **settings)))


def test_a_run_costs_one_forward_together_with_the_choice_after_it():
    events = reply(Grammar.regex("abcdefg(a|b)[cd]"))
    stats = events[-1].stats
    assert emitted(events)[:7] == list(range(7))
    assert stats["target_forwards"] == 2
    assert stats["kinds"]["forced"] == 7
    assert events[-1].reason == "stop"


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_run_to_the_end_costs_no_forward(temperature):
    """From the first token on, after a choice, up to an end token, and up to `max_tokens`."""
    sampling, ended = SamplingParams(temperature=temperature), EndedTokenizer(50)
    for grammar, more, num_tokens, forwards in (
        (Grammar.regex(WORD), {}, 8, 0),
        (Grammar.regex("(ab|c)defgh"), {}, None, 1),
        (Grammar.regex(f"{WORD}(a|b)"), {"max_tokens": 8}, 8, 0),
        (Grammar.regex(f"{WORD}(a|b)"), {"max_tokens": 9}, 9, 1),
    ):
        params = GenerationParams(grammar=grammar, sampling=sampling, **more)
        engine = make_engine(tiny_model(), SuffixDrafter(), tokenizer=ended)
        events = list(engine.generate(PROMPT, params))
        stats = events[-1].stats
        assert stats["target_forwards"] == forwards
        assert stats["generated_tokens"] == num_tokens or num_tokens is None
        assert events[-1].reason == ("length" if more == {"max_tokens": 8} else "stop")


@pytest.mark.parametrize("num_nodes", [0, 6])
def test_a_token_that_the_tokenizer_does_not_have_fits_no_grammar(num_nodes):
    """A model's logits may be wider than its vocabulary of texts."""
    engine = make_engine(tiny_model(), SuffixDrafter(), tokenizer=EndedTokenizer(20))
    params = GenerationParams(
        grammar=Grammar.regex("[a-d]{5}"),
        sampling=SamplingParams(logit_bias={20: 1000.0, 23: 1000.0}),
        num_draft_tokens=num_nodes,
    )
    said = emitted(engine.generate(PROMPT, params))
    assert len(said) >= 5
    assert max(said[:5]) < 4


def test_the_turn_after_a_run_to_the_end_reads_it():
    model, params = tiny_model(), GenerationParams(max_tokens=6)
    engine = make_engine(model, SuffixDrafter())
    said = emitted(engine.generate(PROMPT, GenerationParams(grammar=Grammar.regex("(a|b)cdef"))))
    after = [*PROMPT, *said, 4]
    expected = emitted(make_engine(model, NoDrafter()).generate(after, params))
    assert emitted(engine.generate(after, params)) == expected


@pytest.mark.parametrize(
    "settings",
    [
        {"on_logits": lambda tokens, logits: None},
        {"sampler": lambda logprobs: mx.argmax(logprobs, axis=-1)},
        {"logits_processors": [lambda tokens, logits: logits]},
    ],
    ids=["logits", "sampler", "processor"],
)
def test_who_has_a_say_in_every_token_is_asked_at_the_end_too(settings):
    assert reply(Grammar.regex(WORD), **settings)[-1].stats["target_forwards"] == 1


def test_no_figure_of_drafts_counts_what_is_forced():
    stats = reply(Grammar.regex(WORD), SuffixDrafter())[-1].stats
    names = ("rounds", "drafted", "accepted", "target_forwards", "acceptance_rate")
    assert [stats[name] for name in names] == [0] * 5
    assert stats["sources"] == {}
    plain = reply(Grammar.regex(WORD), num_draft_tokens=0)[-1].stats
    assert (plain["target_forwards"], plain["kinds"]) == (8, {"plain": 8})


def test_guesses_below_a_run_are_counted_by_their_own_depth():
    events = reply(Grammar.regex("abc(d|e)fgh(a|b)"), SuffixDrafter())
    stats = events[-1].stats
    drafted = [node for event in events if event.t == "draft" for node in event.nodes]
    assert stats["drafted"] == sum(node.source != FORCED for node in drafted) > 0
    assert len(stats["drafted_at_depth"]) <= 2
    first = [node.token for node in drafted if node.parent == 3]
    assert sorted(first) == [3, 4]  # of few allowed tokens each one is tried


def test_no_forbidden_token_is_drafted():
    """The prompt repeats what the grammar forbids, so the drafter guesses that."""
    words = Language("(ab|ac)(a|c|d)(b|c)(a|b|c)", 4, 5)
    engine = make_engine(tiny_model(), SuffixDrafter())
    params = GenerationParams(grammar=Grammar.regex(words.pattern))
    said, num_guessed = (), 0
    for event in engine.generate([0, 1, 1, 3, 0, 1, 1, 3, 0, 2, 2], params):
        if event.t == "draft":
            paths = {0: said}
            for node in event.nodes:
                assert node.token in words.following(paths[node.parent])
                paths[node.index] = (*paths[node.parent], node.token)
                num_guessed += node.source == SuffixDrafter.name
        said += tuple(token.token for token in getattr(event, "emit", ()))
    assert num_guessed


class Recorder(Adversary):
    """Says what it was told, and draws a chain of one."""

    def start(self, prompt, sampling, key):
        super().start(prompt, sampling, key)
        self.seen, self.budgets = [], []

    def propose(self, root, budget):
        self.seen.append((*self.tokens, root))
        self.budgets.append(budget)
        tree = DraftTree.chain(mx.array([root, 3], mx.int32))
        return Draft(tree, ("drawn",), sampled_from=mx.ones((1, 24)) / 24)


def test_a_drafter_that_needs_the_text_alone_draws_below_a_run_as_after_it():
    drafter = Recorder()
    sampling = SamplingParams(temperature=1.0)
    events = reply(Grammar.regex("abc(d|e)fgh(a|b)cd"), drafter, sampling=sampling)
    text = [*PROMPT, *emitted(events)]
    assert events[-1].stats["kinds"]["forced"] >= 7  # none of them was rejected with the draft
    assert [len(seen) for seen in drafter.seen] == [len(PROMPT) + 3, len(PROMPT) + 7]
    assert all(list(seen) == text[: len(seen)] for seen in drafter.seen)


def test_a_drafter_below_a_run_has_the_nodes_that_the_run_leaves():
    drafter = Recorder()
    sampling = SamplingParams(temperature=1.0)
    reply(Grammar.regex("abc(d|e)fg(a|b)"), drafter, sampling=sampling, num_draft_tokens=6)
    assert drafter.budgets[0] == 6 - len("abc")


def test_a_drafter_that_begins_again_hears_of_the_next_round():
    """A round that broke off after the draft told the drafter a run, of which nothing became."""
    grammars, recorder = Grammars(EndedTokenizer(24)), Recorder()
    channels = ChannelTracker(None, PROMPT, grammars.tokenizer.token_bytes)
    matcher = grammars.matchers(Grammar.regex("abc(d|e)fg"))
    drafter = GrammarDrafter(Constraint(matcher, 24, (23,), channels), recorder)
    sampling, key = SamplingParams(temperature=1.0), mx.random.key(0)
    drafter.start(PROMPT, sampling, key)
    drafter.propose(PROMPT[-1], 6)
    assert recorder.tokens == [*PROMPT, 0, 1]
    drafter.start(PROMPT, sampling, key)
    drafter.update(Round((PROMPT[-1],), (-1,), (0,), 0))
    assert recorder.tokens == PROMPT


def test_a_stop_string_and_a_stop_token_end_a_run():
    events = reply(Grammar.regex(WORD), stop="de")
    assert "".join(token.text for e in events for token in getattr(e, "emit", ())) == "abc"
    assert emitted(reply(Grammar.regex(WORD), stop_tokens=[2])) == [0, 1, 2]


def test_a_stop_token_with_a_text_ends_nothing_that_a_grammar_may_end():
    """Its text is no part of the language, however much more likely the token is."""
    sampling = SamplingParams(logit_bias={4: 1000.0})
    events = reply(Grammar.regex("ab?"), sampling=sampling, stop_tokens=[4])
    assert emitted(events) == [0, 1]


def test_a_drafter_that_fails_leaves_the_runs():
    class Fails(Adversary):
        def propose(self, root, budget):
            raise RuntimeError("broken")

    events = reply(Grammar.regex("(a|b|c|d|e)bcdefgh"), Fails())
    assert sum(isinstance(event, DrafterFailed) for event in events) == 1
    assert events[-1].stats["kinds"]["forced"] >= 6


class Begins(EndedTokenizer):
    """Letters, "ab" as a token of its own, and a special one that stands before every text."""

    def __init__(self):
        super().__init__(24)

    def token_bytes(self, token):
        return {20: b"ab", 22: b""}.get(token, super().token_bytes(token))

    def encode(self, text, *, add_special_tokens=True):
        pieces = [20 if part == "ab" else ord(part) - ord("a") for part in re.findall("ab|.", text)]
        return [22, *pieces] if add_special_tokens else pieces


def test_a_forced_text_is_spelt_as_the_tokenizer_spells_it_and_has_no_special_tokens():
    engine = make_engine(tiny_model(), NoDrafter(), tokenizer=Begins())
    params = GenerationParams(grammar=Grammar.regex("cabab"))
    assert emitted(engine.generate(PROMPT, params)) == [2, 20, 20]


def test_a_sampler_that_chooses_a_forbidden_token_is_refused():
    with pytest.raises(ValueError, match="which the grammar forbids here"):
        reply(Grammar.regex("(a|b)c"), sampler=lambda logprobs: 5)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_context_ends_a_run(temperature):
    engine = make_engine(tiny_model(max_position_embeddings=16), NoDrafter())
    params = GenerationParams(
        grammar=Grammar.regex("(abcdefgh){9}"), sampling=SamplingParams(temperature=temperature)
    )
    events = list(engine.generate(PROMPT, params))
    assert events[-1].reason == "context"
    assert emitted(events) == [n % 8 for n in range(len(emitted(events)))]
