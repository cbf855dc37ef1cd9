"""What else could have stood in a place of a reply, against the reference in NumPy."""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.chat.conversation import Conversation
from mlxspec.measure.alternatives import alternatives
from mlxspec.params import GenerationParams, SamplingParams
from tests.support.adversaries import RandomTrees
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.toy_chat import ToyChat
from tests.support.truth import Target

MODEL = tiny_model()
PROMPT = [1, 2, 3, 1, 2]
GREEDY = GenerationParams(max_tokens=12, num_draft_tokens=4, ignore_eos=True)
SAMPLED = SamplingParams(temperature=0.7, top_k=5, repetition_penalty=1.4)


@pytest.mark.parametrize("kind", ["full", "rotating"])
@pytest.mark.parametrize("position", [0, 5, 11])
def test_they_have_the_probabilities_of_the_model_and_of_the_settings(kind, position):
    params = GenerationParams(max_tokens=12, ignore_eos=True, sampling=SAMPLED, seed=3)
    engine = make_engine(MODEL, RandomTrees(24), kind, tokenizer=ToyChat())
    tokens = emitted(engine.generate(PROMPT, params))
    before, written = tokens[:position], tokens[position]
    found = alternatives(engine, PROMPT, before, params, k=6, written=written)

    target, prefix = Target(MODEL, kind), (*PROMPT, *before)
    plain = np.exp(target.logits(prefix) - np.logaddexp.reduce(target.logits(prefix)))
    drawn = target.distribution(prefix, SAMPLED, len(PROMPT))
    best = np.argsort(-plain)[:6].tolist()
    assert [each.token for each in found] == best + [written] * (written not in best)
    for each in found:
        assert each.model_prob == pytest.approx(plain[each.token], abs=1e-5)
        assert each.prob == pytest.approx(drawn[each.token], abs=1e-5)


def test_a_greedy_reply_had_no_alternative():
    engine = make_engine(MODEL, RandomTrees(24), tokenizer=ToyChat())
    tokens = emitted(engine.generate(PROMPT, GREEDY))
    for position, written in enumerate(tokens):
        found = alternatives(engine, PROMPT, tokens[:position], GREEDY, k=3)
        assert [each.prob for each in found] == [1.0, 0.0, 0.0]
        assert found[0].token == written
        assert found[0].model_prob > found[1].model_prob > found[2].model_prob > 0


def test_a_processor_of_the_caller_counts_and_his_sampler_is_not_known():
    def ban_seven(tokens, logits):
        return logits - 1e9 * (mx.arange(logits.shape[-1]) == 7)

    engine = make_engine(MODEL, RandomTrees(24), tokenizer=ToyChat())
    at_one = SamplingParams(temperature=1.0)
    banned = GenerationParams(max_tokens=2, sampling=at_one, logits_processors=(ban_seven,))
    found = alternatives(engine, PROMPT, [], banned, k=24)
    probs = {each.token: each for each in found}
    assert probs[7].prob == 0 < probs[7].model_prob
    assert sum(each.prob for each in found) == pytest.approx(1, abs=1e-5)
    own = GenerationParams(max_tokens=2, sampling=at_one, sampler=lambda logprobs: 3)
    assert {each.prob for each in alternatives(engine, PROMPT, [], own)} == {None}


def chat():
    return Conversation(make_engine(MODEL, RandomTrees(24), tokenizer=ToyChat()))


def test_an_earlier_turn_is_asked_and_the_chat_goes_on_as_it_would_have():
    asked, other = chat(), chat()
    for one in (asked, other):
        for text in ("ab", "cd"):
            list(one.reply(text, GREEDY))
    first = asked.alternatives(0, 4)
    assert first[0].prob == 1
    assert emitted(asked.reply("ef", GREEDY)) == emitted(other.reply("ef", GREEDY))
    assert asked.turns == other.turns


def test_a_place_that_is_not_there_is_refused():
    one = chat()
    list(one.reply("ab", GREEDY))
    with pytest.raises(ValueError, match="there is no turn 1; the chat has 1"):
        one.alternatives(1, 0)
    with pytest.raises(ValueError, match="there is no token 12; the reply has 12"):
        one.alternatives(0, 12)
    with pytest.raises(ValueError, match="k must be"):
        one.alternatives(0, 0, k=0)
    one.restore([("ab", "cd")])
    with pytest.raises(ValueError, match="only its text"):
        one.alternatives(0, 0)
