"""Replies that join and leave between rounds: each is the one that its prompt gets alone.

Greedy tokens are compared with the target computed anew in NumPy, sampled ones with an engine that
replies to one prompt after the other.
"""

import pytest

from mlxspec.batch.decoder import BatchDecoder
from mlxspec.params import GenerationParams
from mlxspec.reply.writer import ReplyWriter
from mlxspec.trace.events import DrafterFailed, GenerationFinished, text_of
from tests.support.adversaries import RandomTrees
from tests.support.batches import (
    DRAFTERS,
    MODEL,
    PROMPTS,
    REPLIES,
    for_each_sequence,
    one_by_one,
)
from tests.support.limited_targets import LimitedModel
from tests.support.pairwise import each_value
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.tiny_heads_eagle import eagle3_drafter
from tests.support.tiny_heads_exit import exit_drafter
from tests.support.truth import Computed, Target

LENGTH = 18
JOINS = {0: [0], 3: [1, 2], 4: [3], 14: [4], 44: [5, 6]}  # prompts by the step before which


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


TRUE = Computed(lambda kind: [Target(MODEL, kind).greedy(prompt, LENGTH) for prompt in PROMPTS])


@each_value(kind=["full", "int8", "rotating"], drafter=["none", "pool", "random trees"])
def test_replies_that_join_late_are_those_of_the_target(drafter, kind):
    found = run(opened(drafter, kind), [params_of()] * 7)
    assert [emitted(events) for events in found] == TRUE[kind]


@pytest.mark.parametrize("make_drafter", [eagle3_drafter, exit_drafter])
def test_drafters_that_read_the_target_join_too(make_drafter):
    engine = make_engine(MODEL, None, make_drafter=make_drafter)
    found = run(engine.open_batch(batch_size=3), [params_of()] * 7)
    assert [emitted(events) for events in found] == REPLIES["llama"]
    assert not any(isinstance(event, DrafterFailed) for events in found for event in events)
    assert max(events[-1].stats["mean_acceptance_length"] for events in found) > 1


def test_a_reply_that_is_alone_is_written_as_the_engine_writes_it(monkeypatch):
    alone = []
    monkeypatch.setattr(ReplyWriter, "propose", counted(ReplyWriter.propose, alone))
    found = run(opened("none"), [params_of()] * 2, {0: [0], 5: [1]})
    assert [emitted(events) for events in found] == REPLIES["llama"][:2]
    assert len(alone) == 5 + 5  # before the second one, and after the first one


def counted(function, calls):
    def call(*args):
        calls.append(1)
        return function(*args)

    return call


@each_value(drafter=["none", "pool"], at=[0, 1, 4, 6])
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


def test_prompts_that_share_a_beginning_read_it_once():
    batch = opened("pool", prefix_bytes=1 << 20)
    shared, other = PROMPTS[5], PROMPTS[2]
    asked = [shared, other, [*shared, 3, 4], [*shared[:20], 9], shared]
    found = [finished(batch, [prompt], params_of(max_tokens=6))[0] for prompt in asked]
    reused = [events[-1].stats["reused_tokens"] for events in found]
    assert reused == [0, 0, len(shared), 20, len(shared) - 1]
    replies = [emitted(events) for events in found]
    assert replies == [Target(MODEL).greedy(prompt, 6) for prompt in asked]


@pytest.mark.parametrize("before", [[], [PROMPTS[6]]], ids=["first", "second"])
@pytest.mark.parametrize("after", [[], [PROMPTS[2]]], ids=["last", "before the last"])
def test_the_next_turn_of_a_chat_begins_with_all_rows_of_the_last_and_no_more(before, after):
    batch, prompt = opened("none", prefix_bytes=1 << 20), PROMPTS[5]
    said = Target(MODEL).greedy(prompt, 6)
    text = [*prompt, *said, 3, 4]
    for prompts in ([*before, prompt, *after], [PROMPTS[2]], [text]):
        events = finished(batch, prompts, params_of(max_tokens=6))
    (told,) = events
    # the last token has no row yet
    assert told[-1].stats["reused_tokens"] == len(prompt) + len(said) - 1
    assert emitted(told) == Target(MODEL).greedy(text, 6)


def finished(batch, prompts, params):
    """The events of replies that join together, when all are over."""
    replies = [batch.join(prompt, params) for prompt in prompts]
    events = [[] for _ in replies]
    while batch.num_replies:
        for reply, event in batch.step():
            events[replies.index(reply)].append(event)
    return events


def test_beginnings_are_kept_of_no_more_tokens_than_64_contexts_have():
    prefixes = opened(prefix_bytes=1 << 40)._prefixes
    assert prefixes.max_tokens == 64 * MODEL.config.max_position_embeddings


def test_without_room_for_prefixes_only_the_latest_text_is_reused():
    batch = opened("none")
    reused = [reused_of(batch, prompt) for prompt in (PROMPTS[5], PROMPTS[2], PROMPTS[5])]
    assert reused == [[0], [0], [0]]


@pytest.mark.parametrize(("joins", "expected"), [({0: [0]}, 0), ({0: [0, 1]}, 2)])
def test_rows_of_a_prompt_are_copied_only_if_its_reply_shares_its_forwards(
    monkeypatch, joins, expected
):
    """A long prompt whose reply is written alone waits for no copy before its first token."""
    copies = []
    monkeypatch.setattr(BatchDecoder, "join", counted(BatchDecoder.join, copies))
    run(opened(), [params_of(max_tokens=3)] * 2, joins)
    assert len(copies) == expected


@pytest.mark.parametrize("joins", [{0: [0]}, {0: [0, 1]}], ids=["alone", "in company"])
def test_text_that_was_held_back_is_told_at_the_end(joins):
    last = chr(ord("a") + REPLIES["llama"][0][-1])
    params = [params_of(stop=(f"{last}?",))] * 2
    events = run(opened(), params, joins)[0]
    ((_, text, _),) = one_by_one("none", PROMPTS[:1], params[:1])
    assert "".join(map(text_of, events)) == text
    assert events[-1].text == last


def test_more_replies_than_slots_wait_and_one_that_waits_is_cancelled_at_once():
    batch = opened(batch_size=2)
    first, second, third, fourth = (batch.join(prompt, params_of()) for prompt in PROMPTS[:4])
    assert not batch.has_room
    batch.step()
    assert (batch.running, list(batch.waiting)) == ([first, second], [third, fourth])
    third.cancel()
    told = [reply for reply, event in batch.step() if isinstance(event, GenerationFinished)]
    assert told == [third]
    assert batch.running == [first, second]
    assert batch.present == [first, second, fourth]


def apart(length=2048):
    """A batch whose replies have a decoder each, as their target verifies chains alone."""
    model = LimitedModel(tiny_model(vocab_size=24, max_position_embeddings=length), "chain")
    return make_engine(model, DRAFTERS["none"]()).open_batch(batch_size=3)


def reused_of(batch, *prompts):
    """How many tokens of each prompt were read before; they join together."""
    events = finished(batch, prompts, params_of(max_tokens=2))
    return [own[-1].stats["reused_tokens"] for own in events]


def long_model_batch():
    model = tiny_model(vocab_size=24, max_position_embeddings=2048)
    return make_engine(model, DRAFTERS["none"]()).open_batch(batch_size=3, prefix_bytes=1 << 24)


@pytest.mark.parametrize("make", [apart, long_model_batch])
def test_what_was_read_of_a_prompt_that_is_cancelled_is_not_read_again(make):
    batch, long = make(), (PROMPTS[5] * 40)[:1100]
    reply = batch.join(long, params_of(max_tokens=2))
    batch.step()
    reply.cancel()
    batch.step()
    assert batch.num_replies == 0
    if make is not apart:  # where another text can take the place of the first one
        reused_of(batch, PROMPTS[2])
    assert reused_of(batch, long) == [512]


def test_a_text_goes_to_the_decoder_that_has_read_its_beginning():
    batch, texts = apart(), PROMPTS[2:6:3]
    assert reused_of(batch, *texts) == [0, 0]
    for text in (texts[1], texts[0], texts[1]):
        assert reused_of(batch, text)[0] >= len(text) - 1


def test_a_reply_that_is_alone_again_has_its_own_rows_and_not_those_of_a_text_as_long():
    batch = opened()
    params = params_of()
    first = batch.join(PROMPTS[0], params)
    events = [event for _ in range(3) for _, event in batch.step()]
    as_long = [9] * (len(PROMPTS[0]) + len(emitted(events)) + 1)
    batch.join(as_long, params_of(max_tokens=1))
    while batch.num_replies:
        events += [event for reply, event in batch.step() if reply is first]
    assert emitted(events) == REPLIES["llama"][0]


class CountsStarts(RandomTrees):
    """Counts how often it is started."""

    num_starts = 0

    def start(self, prompt, sampling, key):
        super().start(prompt, sampling, key)
        self.num_starts += 1


def test_a_drafter_goes_on_when_its_reply_moves():
    batch = make_engine(MODEL, for_each_sequence(CountsStarts, 24)).open_batch(batch_size=3)
    first = batch.join(PROMPTS[0], params_of())
    events = [event for _ in range(3) for _, event in batch.step()]
    batch.join(PROMPTS[1], params_of(max_tokens=2))  # in company, then alone again
    while batch.num_replies:
        events += [event for reply, event in batch.step() if reply is first]
    assert emitted(events) == REPLIES["llama"][0]
    assert first.drafter.num_starts == 1
