"""Replies that are held, read in turn, or used after the engine was closed."""

import gc
from dataclasses import replace
from functools import cache
from itertools import zip_longest

import mlx.core as mx
import pytest

from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.errors import EngineClosedError, MlxspecError, UnsupportedOperationError
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.trace.events import DrafterFailed, GenerationFinished, PrefillProgress
from mlxspec.verify.noise import Noise
from tests.engine.test_interrupts import DRAFTERS, MODEL, PROMPT, SHADOWS, LooksAhead, engine_with
from tests.support.adversaries import AlwaysRight, RandomTrees
from tests.support.pairwise import each_value
from tests.support.shadow import assert_holds
from tests.support.tiny import emitted, make_engine, tiny_model

PARAMS = GenerationParams(max_tokens=10, num_draft_tokens=4)
SAMPLED = replace(
    PARAMS,
    sampling=SamplingParams(temperature=1.0, repetition_penalty=1.2),
    seed=5,
    exact_seed=True,
)
OTHER = [*PROMPT[::-1], 2]


EITHER = [pytest.param(PARAMS, id="greedy"), pytest.param(SAMPLED, id="sampled")]


def begun(drafter="pool", count=3, *, params=PARAMS, kind="full"):
    """An engine, a reply of it to PROMPT, and the first events of that."""
    engine = engine_with(drafter, kind, looks_ahead=True)
    held = engine.generate(PROMPT, params)
    return engine, held, [next(held) for _ in range(count)]


def alone(drafter, kind, prompt, params):
    return _alone(drafter, kind, tuple(prompt), params is SAMPLED)


@cache
def _alone(drafter, kind, prompt, is_sampled):
    params = SAMPLED if is_sampled else PARAMS
    return emitted(engine_with(drafter, kind).generate(list(prompt), params))


@each_value(drafter=DRAFTERS, kind=SHADOWS, params=EITHER)
def test_replies_read_in_turn_are_those_read_alone(drafter, kind, params):
    engine = engine_with(drafter, kind, looks_ahead=True)
    prompts = [PROMPT, OTHER, PROMPT]
    replies = [engine.generate(prompt, params) for prompt in prompts]
    told = zip(*zip_longest(*replies), strict=True)
    for prompt, events in zip(prompts, told, strict=True):
        read = [event for event in events if event is not None]
        assert emitted(read) == alone(drafter, kind, prompt, params)
        assert isinstance(read[-1], GenerationFinished)


@each_value(count=[1, 3, 4, 6], drafter=DRAFTERS, kind=SHADOWS, params=EITHER)
def test_a_held_reply_goes_on_after_others_were_written(drafter, kind, params, count):
    engine, held, told = begun(drafter, count, params=params, kind=kind)
    assert emitted(engine.generate(OTHER, params)) == alone(drafter, kind, OTHER, params)
    assert emitted([*told, *held]) == alone(drafter, kind, PROMPT, params)
    said = emitted(engine.generate(OTHER, params))
    assert said == alone(drafter, kind, OTHER, params)
    assert_holds(engine.target, [*OTHER, *said][: len(engine.target)], SHADOWS[kind])


@pytest.mark.parametrize("count", [3, 4, 5])
def test_a_reply_that_is_left_leaves_nothing_staged(count):
    """Not even a round that runs ahead."""
    engine, held, _ = begun("pool", count)
    held.close()
    assert engine.target.cache.num_staged == 0


def test_a_held_reply_drafts_again_once_the_other_is_over():
    engine = engine_with("model", "full")
    held = engine.generate(PROMPT, PARAMS)
    told = [next(held) for _ in range(3)]
    list(engine.generate(OTHER, PARAMS))
    told += held
    assert sum(len(getattr(event, "nodes", ())) for event in told[3:]) > 0
    assert len([event for event in told if isinstance(event, PrefillProgress)]) == 1


@each_value(
    count=[3, 4, 5, 6],
    drafter=["eagle3", "pool"],
    disturb=[
        pytest.param(lambda target: target.reset(), id="reset"),
        pytest.param(lambda target: target.observe([1, 2, 3]), id="observe"),
        pytest.param(lambda target: target.rollback_to(3), id="rollback"),
        pytest.param(
            lambda target: (target.rollback_to(0), target.observe(list(target.history) + [9] * 12)),
            id="another text",
        ),
    ],
)
def test_a_held_reply_goes_on_whatever_was_done_to_the_target(drafter, disturb, count):
    engine, held, told = begun(drafter, count)
    disturb(engine.target)
    assert emitted([*told, *held]) == SHADOWS["full"].greedy(PROMPT, 10)


def test_the_newest_reply_keeps_what_the_engine_has_read():
    engine = engine_with("pool", "full")
    held = engine.generate(OTHER, PARAMS)
    next(held), next(held), next(held)
    told = emitted(engine.generate(PROMPT, PARAMS))
    newest = engine.generate([*PROMPT, *told, 4], PARAMS)
    assert next(newest)
    progress = next(newest)
    assert progress.reused == len(PROMPT) + len(told) - 1
    for _ in range(5):
        next(held)  # beside it, in a cache of its own
    assert len(engine.target) >= len(PROMPT) + len(told)
    assert emitted([*newest]) == SHADOWS["full"].greedy([*PROMPT, *told, 4], 10)


class NotesKeys(RandomTrees):
    """Notes after how many tokens it is started, with which key."""

    def start(self, prompt, sampling, key):
        super().start(prompt, sampling, key)
        self.started = [*getattr(self, "started", []), (len(prompt), key.tolist())]


def test_each_start_of_a_drafter_has_the_noise_of_its_own_position():
    """With the noise of an earlier position, a draft would tell what was drawn there."""
    engine, drafter = make_engine(MODEL, NoDrafter()), NotesKeys(24)
    held = engine.generate(PROMPT, SAMPLED, drafter=drafter)
    for _ in range(3):
        for _ in range(3):
            next(held)
        list(engine.generate(OTHER, PARAMS))  # takes the target away
    list(held)
    assert len({length for length, _ in drafter.started}) >= 3
    for length, key in drafter.started:
        assert key == Noise.of_seed(SAMPLED.seed).at(length).key_for("draft").tolist()


class Fails(RandomTrees):
    """Fails whenever it is asked, and counts that."""

    num_asked = 0

    def propose(self, root, budget):
        self.num_asked += 1
        raise RuntimeError("broken")


def test_a_drafter_that_failed_is_not_asked_again_when_its_reply_moves():
    engine, drafter = make_engine(MODEL, NoDrafter()), Fails(24)
    held = engine.generate(PROMPT, PARAMS, drafter=drafter)
    begun = [next(held) for _ in range(5)]
    list(engine.generate(OTHER, PARAMS))  # takes the target away
    events = [*begun, *held]
    assert drafter.num_asked == sum(isinstance(event, DrafterFailed) for event in events) == 1
    told = [event for event in events if not isinstance(event, DrafterFailed)]
    assert emitted(told) == SHADOWS["full"].greedy(PROMPT, 10)


# ---- the engine's end ------------------------------------------------------------------------


def test_a_closed_engine_says_so_wherever_it_is_used():
    engine = make_engine(tiny_model(), None)
    held, begun = engine.generate(PROMPT, PARAMS), engine.generate(OTHER, PARAMS)
    next(begun)
    with engine as entered:
        assert entered is engine
    engine.close()
    uses = [
        lambda: engine.generate(PROMPT),
        lambda: engine.generate_batch([PROMPT]),
        lambda: engine.measure_costs(),
        lambda: engine.target,
        lambda: engine.drafter,
        lambda: next(held),
        lambda: next(begun),
    ]
    for use in uses:
        with pytest.raises(EngineClosedError, match="tiny was closed: load it again"):
            use()
    assert issubclass(EngineClosedError, MlxspecError)
    assert list(begun) == []
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = engine.colour


def test_closing_gives_the_memory_back():
    engine = make_engine(tiny_model(hidden_size=256, intermediate_size=1024), None)
    list(engine.generate(PROMPT, PARAMS))
    before = mx.get_active_memory()
    engine.close()
    gc.collect()
    assert mx.get_active_memory() < before - 4e6


def test_what_is_due_at_the_end_is_done_once():
    done = []
    engine, dropped = make_engine(tiny_model(), None), make_engine(tiny_model(), None)
    engine.at_close(lambda: done.append("closed"))
    dropped.at_close(lambda: done.append("dropped"))
    engine.close()
    engine.close()
    assert done == ["closed"]
    del dropped
    gc.collect()
    assert done == ["closed", "dropped"]


# ---- what belongs to one reply ---------------------------------------------------------------


def test_a_reply_may_have_a_drafter_and_a_budget_of_its_own():
    engine, told = make_engine(MODEL, NoDrafter()), SHADOWS["full"].greedy(PROMPT, 10)
    budget, right = LooksAhead(), AlwaysRight(PROMPT + told)
    events = list(engine.generate(PROMPT, PARAMS, drafter=right, budget=budget))
    assert emitted(events) == told
    assert budget.asked > 0
    assert {node.source for event in events for node in getattr(event, "nodes", ())} == {"right"}
    after = list(engine.generate(PROMPT, PARAMS))
    assert emitted(after) == told
    assert (events[0].drafter, after[0].drafter) == ("adversary", "none")
    assert not any(getattr(event, "nodes", ()) for event in after)
    replies = engine.generate_batch([PROMPT], PARAMS, drafter=SuffixDrafter())
    assert [list(reply.tokens) for reply in replies] == [told]
    with pytest.raises(ValueError, match="drafter must be a drafter"):
        engine.generate(PROMPT, drafter="suffix")


class Learns(LooksAhead):
    """Counts the rounds that it learned from, and keeps the budgets that were made like it."""

    def __init__(self):
        self.num_rounds, self.made = 0, []

    def learn(self, round):
        self.num_rounds += 1

    def fresh(self):
        self.made.append(Learns())
        return self.made[-1]


def test_a_reply_that_goes_on_beside_a_newer_one_has_a_budget_of_its_own():
    budget = Learns()
    engine = make_engine(MODEL, NoDrafter(), budget=budget)
    older, newer = engine.generate(PROMPT, PARAMS), engine.generate(OTHER, PARAMS)
    for events, count in ((older, 6), (newer, 6)):
        for _ in range(count):
            next(events)
    before = budget.num_rounds
    assert emitted(older)[-1:] == SHADOWS["full"].greedy(PROMPT, 10)[-1:]
    assert budget.num_rounds == before
    (own,) = budget.made
    assert own.num_rounds > 4


@pytest.mark.parametrize(
    "use",
    [
        lambda engine: list(engine.generate(OTHER, PARAMS)),
        lambda engine: engine.measure_costs(),
        lambda engine: engine.close(),
    ],
    ids=["generate", "measure_costs", "close"],
)
def test_what_a_round_calls_cannot_use_the_engine(use):
    engine = engine_with("pool", "full")
    events = engine.generate(PROMPT, PARAMS, stop_when=lambda token: use(engine))
    with pytest.raises(UnsupportedOperationError, match="between two events"):
        list(events)
    assert emitted(engine.generate(PROMPT, PARAMS)) == SHADOWS["full"].greedy(PROMPT, 10)


@pytest.mark.parametrize("chunk", [None, 3])
def test_should_stop_may_use_the_engine(chunk):
    engine, told = engine_with("pool", "full"), []

    def ask_another():
        told.append(emitted(engine.generate(OTHER, replace(PARAMS, max_tokens=4))))
        return False

    params = replace(PARAMS, prefill_step_size=chunk)
    events = list(engine.generate(PROMPT, params, should_stop=ask_another))
    assert emitted(events) == SHADOWS["full"].greedy(PROMPT, 10)
    assert [e.done for e in events if isinstance(e, PrefillProgress)][-1] == len(PROMPT)
    assert told == [SHADOWS["full"].greedy(OTHER, 4)] * len(told) != []


def test_replies_apart_and_batches_end_where_the_context_is_full():
    engine = make_engine(MODEL, SuffixDrafter())
    engine.target.context_length = 16
    alone = emitted(engine.generate(PROMPT, PARAMS))
    assert len(alone) == 16 - len(PROMPT) + 1
    held, other = engine.generate(PROMPT, PARAMS), engine.generate(OTHER, PARAMS)
    told = [next(held), next(held), next(held), next(other), next(other), *held]
    assert emitted(told) == alone
    assert told[-1].reason == "context"
    (reply,) = engine.generate_batch([PROMPT], PARAMS)
    assert (list(reply.tokens), reply.finish_reason) == (alone, "context")
