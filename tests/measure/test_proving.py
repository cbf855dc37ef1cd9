"""Decoding a reply once more without drafts, against the target recomputed from nothing."""

from dataclasses import replace

import numpy as np
import pytest

from mlxspec.chat.conversation import Conversation
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.measure import lossless as compare
from mlxspec.measure.lossless import prove
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.trace.difference import Difference, Proof
from tests.support.adversaries import RandomTrees
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.toy_chat import ToyChat
from tests.support.truth import Target

MODEL = tiny_model()
PROMPT = [1, 2, 3, 1, 2]
PARAMS = GenerationParams(max_tokens=12, num_draft_tokens=4, ignore_eos=True)


@pytest.fixture(params=["full", "rotating"])
def engine(request):
    return make_engine(MODEL, RandomTrees(24), request.param)


def reply(engine, params=PARAMS):
    return emitted(engine.generate(PROMPT, params))


def test_a_reply_with_drafts_is_proven(engine):
    tokens = reply(engine)
    assert prove(engine, PROMPT, tokens, PARAMS) == Proof(12, 12)


def test_a_fault_that_an_earlier_turn_left_in_the_cache_is_found():
    engine = make_engine(MODEL, RandomTrees(24))
    list(engine.generate(PROMPT, PARAMS))
    for keys in engine.target.cache.arrays[::2]:
        keys[:, :, : len(PROMPT) - 1] *= -3.0
    tokens = reply(engine)  # stands on damaged rows
    truth = Target(MODEL).greedy(PROMPT, 12)
    assert tokens != truth
    proof = prove(engine, PROMPT, tokens, PARAMS)
    assert not proof.is_identical
    assert tokens[: proof.num_same] == truth[: proof.num_same]
    assert reply(engine) == truth  # what was read anew is right again


@pytest.mark.parametrize("place", [0, 11])
def test_a_forged_token_is_found_with_both_logits(place, monkeypatch):
    engine = make_engine(MODEL, RandomTrees(24), "full")
    engine.target.context_length = 99
    tokens, asked = reply(engine), []
    monkeypatch.setattr(compare, "near_tie_after", lambda *given: asked.append(given) or 0.125)
    forged = [*tokens]
    forged[place] = (tokens[place] + 1) % 24
    proof = prove(engine, PROMPT, forged, PARAMS)
    assert not proof.is_identical
    assert (proof.num_same, proof.difference.index) == (place, place)
    pair = proof.difference.token, proof.difference.expected
    assert pair == (forged[place], tokens[place])
    assert (proof.drafted, proof.plain) == tuple(chr(ord("a") + token) for token in pair)
    logits = Target(MODEL).logits((*PROMPT, *tokens[:place]))
    found = [proof.difference.token_logit, proof.difference.expected_logit]
    np.testing.assert_allclose(found, logits[[forged[place], tokens[place]]], atol=1e-4)
    assert proof.difference.near_tie == 0.125  # measured there and nowhere else
    assert asked == [(engine.target, [*PROMPT, *tokens[:place]], 99)]


def test_penalties_are_part_of_what_is_compared(engine):
    params = replace(PARAMS, sampling=SamplingParams(repetition_penalty=1.5))
    tokens = reply(engine, params)
    assert prove(engine, PROMPT, tokens, params).is_identical
    assert not prove(engine, PROMPT, tokens, PARAMS).is_identical


def test_a_stopped_comparison_says_how_far_it_came(engine):
    tokens = reply(engine)
    steps = []
    proof = prove(
        engine,
        PROMPT,
        tokens,
        PARAMS,
        should_stop=lambda: len(steps) == 5,
        on_progress=lambda done, total: steps.append((done, total)),
    )
    assert proof == Proof(12, 5)
    assert steps == [(done, 12) for done in range(1, 6)]
    assert proof.describe() == "the same for 5 tokens of 12, then stopped"


def test_the_drafter_does_not_learn_a_reply_twice():
    drafter = SuffixDrafter()
    engine = make_engine(MODEL, drafter, "full")
    tokens = reply(engine)
    told = []
    drafter.update = drafter.start = lambda *args: told.append(args)
    prove(engine, PROMPT, tokens, PARAMS)
    assert told == []
    assert engine.drafter is drafter


def test_what_cannot_be_compared_is_refused(engine):
    with pytest.raises(ValueError, match="one draw of many"):
        prove(engine, PROMPT, [1], replace(PARAMS, sampling=SamplingParams(temperature=1.0)))
    with pytest.raises(ValueError, match="empty"):
        prove(engine, PROMPT, [], PARAMS)


def chat():
    return Conversation(make_engine(MODEL, RandomTrees(24), tokenizer=ToyChat()))


def test_a_chat_proves_its_last_reply_with_the_settings_of_then_and_goes_on():
    conversation, other = chat(), chat()
    with pytest.raises(ValueError, match="no reply to verify"):
        conversation.prove()
    sampling = SamplingParams(repetition_penalty=1.5)
    for each in (conversation, other):
        list(each.reply("abc", replace(PARAMS, sampling=sampling)))
    assert conversation.prove().is_identical
    assert list(map(str, conversation.messages)) == list(map(str, other.messages))
    assert emitted(conversation.reply("de", PARAMS)) == emitted(other.reply("de", PARAMS))


@pytest.mark.parametrize(
    ("near_tie", "verdict"),
    [
        (0.002, "a near-tie, as rounding explains up to 0.002 here"),
        (0.0004, "NOT A NEAR-TIE, as rounding explains up to 0.0004 here"),
        (0.0, "NOT A NEAR-TIE, as rounding changes nothing here"),
    ],
)
def test_a_difference_is_told_in_a_line(near_tie, verdict):
    found = Difference(4, 1, 2, 0.0005, near_tie, 1.25, 1.2505)
    proof = Proof(9, 4, found, " a", " b")
    assert proof.describe() == (
        "the same for 4 tokens of 9, then ' a' (logit 1.2500) with drafts and ' b' (1.2505) "
        f"without: a gap of 0.0005, {verdict}"
    )


def test_the_gap_is_between_what_bias_and_penalties_made_of_the_logits():
    """Where these decide, the target's own logits say nothing of how near a tie is."""
    engine = make_engine(MODEL, NoDrafter())
    logits = Target(MODEL).logits((*PROMPT,))
    best, second = np.argsort(-logits)[:2].tolist()
    bias = float(logits[best] - logits[second]) + 0.5
    params = replace(PARAMS, sampling=SamplingParams(logit_bias={second: bias}), max_tokens=1)
    found = prove(engine, PROMPT, [best], params).difference
    assert found.gap == pytest.approx(0.5, abs=1e-4)
    assert found.expected_logit == pytest.approx(logits[second] + bias, abs=1e-4)
