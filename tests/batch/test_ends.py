"""Every reply of a batch ends in its own way, and the others go on."""

import pytest

from mlxspec.params import GenerationParams, SamplingParams
from tests.support.batches import DRAFTERS, MODEL, PROMPTS, REPLIES, batch, one_by_one, seen
from tests.support.pairwise import each_value
from tests.support.tiny import make_engine, tiny_model


def letters(tokens):
    return "".join(chr(ord("a") + token) for token in tokens)


@pytest.mark.parametrize("drafter", ["none", "pool"])
def test_every_reply_ends_in_its_own_way(drafter):
    model = tiny_model(max_position_embeddings=38)
    replies = REPLIES["llama"]
    params = [
        GenerationParams(max_tokens=1),
        GenerationParams(max_tokens=24, stop=(letters(replies[1][4:7]),)),
        GenerationParams(max_tokens=17),
        GenerationParams(max_tokens=24, sampling=SamplingParams(temperature=0.7), seed=4),
        GenerationParams(max_tokens=24, num_draft_tokens=0),
        GenerationParams(max_tokens=24),  # the context is full before
        GenerationParams(max_tokens=5, stop=("?",)),
    ]
    found = seen(batch(drafter, params=params, model=model))
    assert found == one_by_one(drafter, PROMPTS, params, model=model)
    reasons = ["length", "stop", "length", "length", "length", "context", "length"]
    assert [reason for _, _, reason in found] == reasons
    assert found[1][1] == letters(replies[1]).split(letters(replies[1][4:7]))[0]


def test_a_stop_token_ends_the_replies_that_say_it_and_no_others():
    engine = make_engine(MODEL, DRAFTERS["always right"]())
    engine.tokenizer.eos_token_ids = (REPLIES["llama"][2][3],)
    stop = engine.tokenizer.eos_token_ids[0]
    replies = list(engine.generate_batch(PROMPTS, GenerationParams(max_tokens=18), batch_size=4))
    for reply, full in zip(replies, REPLIES["llama"], strict=True):
        end = full.index(stop) + 1 if stop in full else 18
        assert list(reply.tokens) == full[:end]
        assert reply.finish_reason == ("stop" if stop in full else "length")
    assert len({reply.finish_reason for reply in replies}) == 2


@pytest.mark.parametrize("drafter", ["none", "random trees"])
def test_cancelling_one_reply_leaves_the_others_as_they_are(drafter):
    engine = make_engine(MODEL, DRAFTERS[drafter]())
    asked = []

    def should_stop(index):
        asked.append(index)
        return index == 2 and asked.count(2) > 4

    params = GenerationParams(max_tokens=18, num_draft_tokens=3)
    replies = list(engine.generate_batch(PROMPTS, params, batch_size=4, should_stop=should_stop))
    assert [reply.finish_reason == "cancelled" for reply in replies] == [i == 2 for i in range(7)]
    assert 0 < len(replies[2].tokens) < 18
    for reply, full in zip(replies, REPLIES["llama"], strict=True):
        assert list(reply.tokens) == full[: len(reply.tokens)]
        assert reply.index == 2 or len(reply.tokens) == 18


def test_all_can_be_cancelled_before_they_begin():
    engine = make_engine(MODEL, DRAFTERS["none"]())
    replies = list(engine.generate_batch(PROMPTS, should_stop=lambda index: True))
    assert [(reply.tokens, reply.text) for reply in replies] == [((), "")] * 7
    assert {reply.finish_reason for reply in replies} == {"cancelled"}


@each_value(cancelled=[(0,), (0, 2), (3,), (1, 2, 3)], count=[4, 7])
def test_some_can_be_cancelled_before_they_begin(cancelled, count):
    engine = make_engine(MODEL, DRAFTERS["pool"]())
    params = GenerationParams(max_tokens=12)
    replies = engine.generate_batch(
        PROMPTS[:count], params, batch_size=4, should_stop=lambda index: index in cancelled
    )
    for reply, full in zip(replies, REPLIES["llama"][:count], strict=True):
        assert list(reply.tokens) == ([] if reply.index in cancelled else full[:12])


def test_replies_come_before_later_prompts_are_read():
    engine = make_engine(MODEL, DRAFTERS["none"]())
    asked = set()
    replies = engine.generate_batch(
        PROMPTS, GenerationParams(max_tokens=4), batch_size=2, should_stop=asked.add
    )
    assert next(replies).index == 0
    assert max(asked) == 1  # the other one of the batch
