"""The engine around the round: ends, cancels, counts, reuse and errors."""

import pytest

from mlxspec.drafters.none import NoDrafter
from mlxspec.errors import ContextLengthError
from mlxspec.params import GenerationParams
from mlxspec.trace.events import GenerationFinished, PrefillProgress
from mlxspec.trace.file import event_from_json, event_to_json
from tests.support.adversaries import AlwaysRight, AlwaysWrong, RandomTrees
from tests.support.pairwise import each_value
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.truth import Target

MODEL = tiny_model()
TARGETS = {kind: Target(MODEL, kind) for kind in ("full", "rotating", "int8")}
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
REPLY = TARGETS["full"].greedy(PROMPT, 40)
FULL = PROMPT + REPLY
DRAFTERS = {
    "none": NoDrafter,
    "always right": lambda: AlwaysRight(FULL),
    "always wrong": lambda: AlwaysWrong(FULL),
    "random trees": lambda: RandomTrees(24),
}
each_drafter = pytest.mark.parametrize("drafter", DRAFTERS)


def stopping_at(place, drafter="always right"):
    """An engine that ends a reply at the token of a place."""
    engine = make_engine(MODEL, DRAFTERS[drafter]())
    engine.tokenizer.eos_token_ids = (REPLY[place],)
    return engine


def run(drafter="always right", *, kind="full", prompt=PROMPT, **params):
    engine = make_engine(MODEL, DRAFTERS[drafter](), kind)
    settings = {"max_tokens": 20, "num_draft_tokens": 5, **params}
    return engine, list(engine.generate(prompt, GenerationParams(**settings)))


def finish(events) -> GenerationFinished:
    assert isinstance(events[-1], GenerationFinished)
    return events[-1]


def letters(tokens):
    return "".join(chr(ord("a") + token) for token in tokens)


def text_of(events) -> str:
    pieces = [token.text for event in events for token in getattr(event, "emit", ())]
    return "".join(pieces) + finish(events).text


def test_the_kinds_say_who_wrote_a_token():
    _, events = run("always right", max_tokens=12)
    kinds = [token.kind for event in events for token in getattr(event, "emit", ())]
    assert kinds == ["accepted"] * 5 + ["bonus"] + ["accepted"] * 5 + ["bonus"]
    _, events = run("always wrong", max_tokens=3)
    kinds = [token.kind for event in events for token in getattr(event, "emit", ())]
    assert kinds == ["corrected", "corrected", "plain"]  # the last token is never drafted for


# ---- ends ------------------------------------------------------------------------------------


@each_value(count=[1, 2, 5, 16, 32], drafter=DRAFTERS)
def test_max_tokens_is_exact(drafter, count):
    _, events = run(drafter, max_tokens=count)
    assert emitted(events) == REPLY[:count]
    assert finish(events).reason == "length"


@each_value(place=range(8), drafter=DRAFTERS)
def test_a_stop_token_ends_the_reply_wherever_it_stands_and_nothing_behind_it_is_kept(
    drafter, place
):
    """It ends the reply in the midst of right drafts, and is the last token: not in the cache."""
    engine = stopping_at(place, drafter)
    events = list(engine.generate(PROMPT, GenerationParams(num_draft_tokens=8)))
    told = emitted(events)
    assert told == REPLY[: REPLY.index(REPLY[place]) + 1]
    assert finish(events).reason == "stop"
    assert list(engine.target.history) == [*PROMPT, *told][:-1]


def test_no_forward_runs_after_the_stop_token(forwards):
    engine = stopping_at(3)
    assert REPLY.index(REPLY[3]) == 3
    list(engine.generate(PROMPT, GenerationParams(num_draft_tokens=5)))
    assert forwards.of(engine.target.model) == 2  # the prompt, and one round of five right tokens


def test_ignore_eos_goes_on_after_a_stop_token():
    params = GenerationParams(max_tokens=9, ignore_eos=True)
    assert emitted(stopping_at(0, "none").generate(PROMPT, params)) == REPLY[:9]


@each_drafter
def test_a_stop_string_ends_the_reply_and_is_left_out(drafter):
    whole = letters(REPLY)
    _, events = run(drafter, stop=(whole[6:9],), max_tokens=40)
    assert text_of(events) == whole[: whole.index(whole[6:9])]
    assert finish(events).reason == "stop"


@each_drafter
def test_a_full_context_ends_the_reply(drafter):
    model = tiny_model(max_position_embeddings=16)
    engine = make_engine(model, DRAFTERS[drafter]())
    events = list(engine.generate(PROMPT, GenerationParams(num_draft_tokens=5)))
    assert finish(events).reason == "context"
    assert len(emitted(events)) == 16 - len(PROMPT) + 1
    assert engine.target.cache.offset == 16


def test_a_rotating_cache_is_never_full():
    model = tiny_model(max_position_embeddings=16)
    engine = make_engine(model, RandomTrees(24), "rotating")
    events = list(engine.generate(PROMPT, GenerationParams(max_tokens=50)))
    assert len(emitted(events)) == 50


# ---- one forward, one wait -------------------------------------------------------------------


@each_drafter
def test_a_round_costs_one_target_forward(drafter, forwards):
    engine, events = run(drafter)
    stats = finish(events).stats
    assert forwards.of(engine.target.model) == 1 + stats["target_forwards"]
    assert stats["target_forwards"] == stats["rounds"] + stats["plain_forwards"]


def test_right_drafts_save_forwards_and_wrong_ones_still_emit_a_token_a_round():
    stats = finish(run("always right", max_tokens=24, num_draft_tokens=5)[1]).stats
    assert (stats["target_forwards"], stats["mean_acceptance_length"]) == (4, 6)
    stats = finish(run("always wrong")[1]).stats
    assert (stats["target_forwards"], stats["accepted"]) == (20, 0)


def test_accepted_drafts_behind_the_end_are_not_counted():
    _, events = run("always right", max_tokens=40, stop=(letters(REPLY[1:3]),))
    assert finish(events).stats["accepted"] == 3


# ---- interrupted -----------------------------------------------------------------------------


@each_value(drafter=DRAFTERS, kind=["full", "rotating"])
def test_a_cancelled_reply_leaves_an_engine_that_replies_as_new(drafter, kind):
    params = GenerationParams(max_tokens=20, num_draft_tokens=5)
    for rounds in range(4):
        engine = make_engine(MODEL, DRAFTERS[drafter](), kind)
        left = iter([False] * (1 + rounds))
        first = list(engine.generate(PROMPT, params, should_stop=lambda it=left: next(it, True)))
        assert finish(first).reason == "cancelled"
        again = emitted(engine.generate(PROMPT, params))
        assert again == TARGETS[kind].greedy(PROMPT, 20)
        assert again[: len(emitted(first))] == emitted(first)


# ---- reuse -----------------------------------------------------------------------------------


@each_value(drafter=DRAFTERS, kind=["full", "rotating", "int8"])
def test_a_longer_prompt_reads_only_what_is_new(drafter, kind):
    engine = make_engine(MODEL, DRAFTERS[drafter](), kind)
    params = GenerationParams(max_tokens=10, num_draft_tokens=5)
    first = emitted(engine.generate(PROMPT, params))
    longer = [*PROMPT, *first, 9, 2, 5]
    events = list(engine.generate(longer, params))
    progress = [event for event in events if isinstance(event, PrefillProgress)]
    assert progress[-1].reused == len(PROMPT) + len(first) - 1
    assert emitted(events) == TARGETS[kind].greedy(longer, 10)
    other = [*PROMPT[:5], 20, 21]  # which shares its beginning alone
    assert emitted(engine.generate(other, params)) == TARGETS[kind].greedy(other, 10)


def test_a_long_prompt_is_counted_from_the_first_moment_on_in_growing_steps():
    model = tiny_model(max_position_embeddings=2048)
    engine, long = make_engine(model, NoDrafter()), [7 * n * n % 24 for n in range(700)]
    events = list(engine.generate(long, GenerationParams(max_tokens=4)))
    progress = [event for event in events if isinstance(event, PrefillProgress)]
    assert [event.done for event in progress] == [0, 65, 129, 257, 513, 700]
    assert {(event.total, event.reused) for event in progress} == {(700, 0)}
    assert emitted(events) == Target(model).greedy(long, 4)
    again = engine.generate(
        [*long, *emitted(events), 5, *long[:300]], GenerationParams(max_tokens=1)
    )
    first = next(event for event in again if isinstance(event, PrefillProgress))
    assert (first.done, first.reused) == (703, 703)


def test_a_reply_is_stopped_before_any_of_its_long_prompt_is_read():
    model = tiny_model(max_position_embeddings=2048)
    engine, asked = make_engine(model, NoDrafter()), iter([False, True])
    events = list(engine.generate([5] * 1500, None, should_stop=lambda: next(asked, True)))
    assert [event.done for event in events if isinstance(event, PrefillProgress)] == [0]
    assert (events[-1].reason, len(engine.target)) == ("cancelled", 0)


# ---- events ----------------------------------------------------------------------------------


def test_the_texts_of_the_events_are_the_reply_and_every_event_survives_the_trace():
    _, events = run("random trees")
    assert text_of(events) == letters(REPLY[:20])
    assert [event_from_json(event_to_json(event)) for event in events] == events


@pytest.mark.parametrize(
    ("prompt", "error", "message"),
    [
        ([], ValueError, "prompt is empty"),
        ([1] * 17, ContextLengthError, "17 tokens; tiny takes 16"),
        ([1, 24], ValueError, "token 24 is not in the vocabulary of 0 to 23"),
    ],
)
def test_a_prompt_that_cannot_be_read_is_refused(prompt, error, message):
    with pytest.raises(error, match=message):
        make_engine(tiny_model(max_position_embeddings=16), NoDrafter()).generate(prompt)
