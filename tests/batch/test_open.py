"""Replies that join and leave between rounds: each is the one that its prompt gets alone.

Greedy tokens are compared with the target computed anew in NumPy, sampled ones with an engine that
replies to one prompt after the other.
"""

import pytest

from mlxspec.batch.decoder import BatchDecoder
from mlxspec.engine.engine import Engine
from mlxspec.params import GenerationParams
from mlxspec.trace.events import DrafterFailed, GenerationFinished, PrefillProgress, text_of
from tests.support.batches import DRAFTERS, MODEL, PROMPTS, REPLIES, SAMPLING, one_by_one
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.tiny_heads_eagle import eagle3_drafter
from tests.support.tiny_heads_exit import exit_drafter
from tests.support.truth import Target

LENGTH = 24
JOINS = {
    0: [0],
    3: [1, 2],
    4: [3],
    19: [4],
    60: [5, 6],
}  # prompts by the step before which they come


def opened(drafter="none", kind="full", **sizes):
    engine = make_engine(MODEL, DRAFTERS[drafter](), kind)
    return engine.open_batch(**{"batch_size": 3, "rows_per_round": 24, **sizes})


def params_of(seed=0, **changes):
    return GenerationParams(**{"max_tokens": LENGTH, "num_draft_tokens": 5, "seed": seed} | changes)


def run(batch, params, joins=JOINS, act=lambda step, replies: None):
    """The events of each prompt that joined."""
    replies, events, step = {}, {}, 0
    while step <= max(joins) or batch.num_replies:
        for index in joins.get(step, []):
            replies[index] = batch.join(PROMPTS[index], params[index])
        act(step, replies)
        for reply, event in batch.step():
            (index,) = (index for index, other in replies.items() if other is reply)
            events.setdefault(index, []).append(event)
        step += 1
    return [events[index] for index in sorted(events)]


@pytest.mark.parametrize("kind", ["full", "int8", "rotating"])
@pytest.mark.parametrize("drafter", ["none", "pool", "random trees"])
def test_replies_that_join_late_are_those_of_the_target(drafter, kind):
    found = run(opened(drafter, kind), [params_of()] * 7)
    true = REPLIES["llama"]
    if kind != "full":
        true = [Target(MODEL, kind).greedy(prompt, LENGTH) for prompt in PROMPTS]
    assert [emitted(events) for events in found] == true


@pytest.mark.parametrize("make_drafter", [eagle3_drafter, exit_drafter])
def test_drafters_that_read_the_target_join_too(make_drafter):
    engine = make_engine(MODEL, None, make_drafter=make_drafter)
    found = run(engine.open_batch(batch_size=3), [params_of()] * 7)
    assert [emitted(events) for events in found] == REPLIES["llama"]
    assert not any(isinstance(event, DrafterFailed) for events in found for event in events)
    assert max(events[-1].stats["mean_acceptance_length"] for events in found) > 1


@pytest.mark.parametrize("sampling", ["filters", "penalties"])
def test_sampled_replies_are_those_of_one_by_one_decoding(sampling):
    params = [params_of(seed, sampling=SAMPLING[sampling]) for seed in range(7)]
    found = run(opened("pool"), params)
    expected = one_by_one("none", PROMPTS, params)
    assert [tuple(emitted(events)) for events in found] == [tokens for tokens, _, _ in expected]


def test_events_of_a_reply_are_its_prompt_its_rounds_and_its_end():
    (events,) = run(opened("pool"), [params_of()], {0: [0]})
    assert isinstance(events[0], PrefillProgress)
    assert (events[0].done, events[0].total) == (len(PROMPTS[0]),) * 2
    assert isinstance(events[-1], GenerationFinished)
    stats = events[-1].stats
    assert stats["generated_tokens"] == LENGTH
    assert stats["prompt_tokens"] == len(PROMPTS[0])
    rounds = [event for event in events if hasattr(event, "emit")]
    assert stats["rounds"] + stats["plain_forwards"] == len(rounds)


def test_a_reply_that_is_alone_is_written_as_the_engine_writes_it(monkeypatch):
    alone = []
    monkeypatch.setattr(Engine, "round", counted(Engine.round, alone))
    found = run(opened("none"), [params_of()] * 2, {0: [0], 5: [1]})
    assert [emitted(events) for events in found] == REPLIES["llama"][:2]
    assert len(alone) == 5 + 5  # before the second one, and after the first one


def counted(function, calls):
    def call(*args):
        calls.append(1)
        return function(*args)

    return call


@pytest.mark.parametrize("drafter", ["none", "pool"])
@pytest.mark.parametrize("at", [0, 1, 4, 6])
def test_a_reply_that_is_cancelled_leaves_the_others_as_they_are(drafter, at):
    def act(step, replies):
        if step == at:
            replies[0].cancel()

    found = run(opened(drafter), [params_of()] * 7, {0: [0, 1], 2: [2]}, act)
    assert found[0][-1].reason == "cancelled"
    assert len(emitted(found[0])) < LENGTH
    assert emitted(found[0]) == REPLIES["llama"][0][: len(emitted(found[0]))]
    assert [emitted(events) for events in found[1:]] == REPLIES["llama"][1:3]


def test_a_long_prompt_is_read_in_parts_between_rounds():
    model = tiny_model(vocab_size=24, max_position_embeddings=2048)
    engine = make_engine(model, DRAFTERS["none"]())
    batch, long = engine.open_batch(), (PROMPTS[5] * 40)[:1100]
    first = batch.join(PROMPTS[0], params_of())
    batch.step()
    second = batch.join(long, params_of(max_tokens=2))
    seen = [[reply is first for reply, _ in batch.step()] for _ in range(3)]
    assert seen[:2] == [[True, False]] * 2  # a round of the one, a part of the other
    events = []
    while batch.num_replies:
        events += [event for reply, event in batch.step() if reply is second]
    assert emitted(events) == Target(model).greedy(long, 2)[-len(emitted(events)) :]


def test_prompts_that_share_a_beginning_read_it_once(monkeypatch):
    batch = opened("pool", prefix_bytes=1 << 20)
    shared, other = PROMPTS[5], PROMPTS[2]
    asked = [shared, other, [*shared, 3, 4], [*shared[:20], 9], shared]
    reused, replies = [], []
    for prompt in asked:
        batch.join(prompt, params_of(max_tokens=6))
        events = []
        while batch.num_replies:
            events += [event for _, event in batch.step()]
        reused.append(events[-1].stats["reused_tokens"])
        replies.append(emitted(events))
    assert reused == [0, 0, len(shared), 20, len(shared) - 1]
    assert replies == [Target(MODEL).greedy(prompt, 6) for prompt in asked]


def test_without_room_for_prefixes_only_the_latest_text_is_reused():
    batch = opened("none")
    reused = []
    for prompt in (PROMPTS[5], PROMPTS[2], PROMPTS[5]):
        batch.join(prompt, params_of(max_tokens=1))
        while batch.num_replies:
            reused += [e.stats["reused_tokens"] for _, e in batch.step() if hasattr(e, "stats")]
    assert reused == [0, 0, 0]


@pytest.mark.parametrize(("joins", "expected"), [({0: [0]}, 0), ({0: [0, 1]}, 1)])
def test_rows_of_a_prompt_are_copied_only_where_another_text_is_read_after_it(
    monkeypatch, joins, expected
):
    """A long prompt whose reply is written alone waits for no copy before its first token."""
    held, settle = [], BatchDecoder.settle

    def settled(decoder):
        held.append(sum(decoder.cache.offsets))
        settle(decoder)

    monkeypatch.setattr(BatchDecoder, "settle", settled)
    run(opened(), [params_of(max_tokens=3)] * 2, joins)
    assert sum(map(bool, held)) == expected


@pytest.mark.parametrize("joins", [{0: [0]}, {0: [0, 1]}], ids=["alone", "in company"])
def test_text_that_was_held_back_is_told_at_the_end(joins):
    last = chr(ord("a") + REPLIES["llama"][0][-1])
    params = [params_of(stop=(f"{last}?",))] * 2
    events = run(opened(), params, joins)[0]
    ((_, text, _),) = one_by_one("none", PROMPTS[:1], params[:1])
    assert "".join(map(text_of, events)) == text
    assert events[-1].text == last


def test_more_replies_than_slots_wait_their_turn():
    batch = opened("none", batch_size=2)
    for prompt in PROMPTS[:4]:
        batch.join(prompt, params_of())
    assert not batch.has_room
    batch.step()
    assert (len(batch.running), batch.num_waiting) == (2, 2)
