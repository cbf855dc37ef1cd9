"""Whatever breaks off, wherever it is: the next turn is right, and the cache is that of its text.

A reply is broken off at one line of the package after the other, as Ctrl-C, the memory or the
caller may; then at every event, by who reads them and by who is asked whether to stop.
"""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import mlx.core as mx
import pytest

import mlxspec
from mlxspec.budget import FixedBudget
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.draft_model import DraftModelDrafter
from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.params import GenerationParams
from tests.support.adversaries import RandomTrees
from tests.support.pairwise import each_value
from tests.support.shadow import Shadow, assert_holds
from tests.support.tiny import emitted, make_cache, make_engine, tiny_model
from tests.support.tiny_heads_eagle import eagle3_drafter
from tests.support.tiny_heads_exit import exit_drafter

MODEL, SMALL = tiny_model(), tiny_model(seed=6)
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
PACKAGE = str(Path(mlxspec.__file__).parent)
SHADOWS = {kind: Shadow(MODEL, kind) for kind in ("full", "rotating")}
DRAFTS = {kind: Shadow(SMALL, kind) for kind in SHADOWS}


class LooksAhead(FixedBudget):
    """Leaves the drafter alone in every other round, which the engine then begins beforehand."""

    looks_ahead = True
    asked = 0

    def ask(self, limit):
        self.asked += 1
        return limit * (self.asked % 3 == 0)


def draft_model(target, kind):
    return DraftModelDrafter(Decoder(SMALL, make_cache(SMALL, kind)), 24)


DRAFTERS = {
    "random trees": lambda target, kind: RandomTrees(24),
    "model": draft_model,
    "eagle3": lambda target, kind: eagle3_drafter(target),
    "exit": lambda target, kind: exit_drafter(target),
    "pool": lambda target, kind: PoolDrafter([SuffixDrafter(), draft_model(target, kind)]),
}


def engine_with(drafter, kind, *, looks_ahead=False):
    make, budget = partial(DRAFTERS[drafter], kind=kind), LooksAhead() if looks_ahead else None
    return make_engine(MODEL, None, kind, make_drafter=make, budget=budget)


class Breaks:
    """Raises at the n-th line of the package that runs; counts them until then."""

    def __init__(self, error, at=None):
        self.error, self.at, self.lines = error, at, 0

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self.trace)
        return self

    def __exit__(self, *_):
        sys.settrace(self.before)

    def trace(self, frame, event, _):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                raise self.error
        return self.trace


def assert_replies_as_new(engine, kind, params):
    """The next turn goes on from whatever is left in the cache; then the cache is looked at."""
    shadow = SHADOWS[kind]
    for prompt in (PROMPT, [*PROMPT, *shadow.greedy(PROMPT, 4), 9, 2]):
        told = emitted(engine.generate(prompt, params))
        assert told == shadow.greedy(prompt, params.max_tokens)
        left = [*prompt, *told][: len(engine.target)]
        assert len(left) >= len(prompt) + len(told) - 1
        assert_holds(engine.target, left, shadow)
    decoder = getattr(engine.drafter, "decoder", None)
    if decoder is not None and decoder is not engine.target:
        assert_holds(decoder, decoder.history, DRAFTS[kind])
        assert list(decoder.history) == [*prompt, *told][: len(decoder)]


PARAMS = GenerationParams(max_tokens=7, num_draft_tokens=4)
NUM_PLACES = 3


@each_value(drafter=DRAFTERS, looks_ahead=[False, True], kind=SHADOWS)
def test_a_reply_broken_off_at_any_line_is_followed_by_a_right_one(drafter, looks_ahead, kind):
    list(engine_with(drafter, kind, looks_ahead=looks_ahead).generate(PROMPT, PARAMS))
    engine = engine_with(drafter, kind, looks_ahead=looks_ahead)
    with Breaks(None) as whole:  # the first reply makes what later ones find made
        list(engine.generate(PROMPT, PARAMS))
    random = Random(f"{drafter} {looks_ahead} {kind}")
    for at in (random.randint(1, whole.lines * 9 // 10) for _ in range(NUM_PLACES)):
        engine = engine_with(drafter, kind, looks_ahead=looks_ahead)
        with Breaks(KeyboardInterrupt(), at), pytest.raises(KeyboardInterrupt):
            list(engine.generate(PROMPT, PARAMS))
        assert_replies_as_new(engine, kind, PARAMS)


class Mistake(Exception):
    """What a function of the caller raises."""


def fail(*_):
    raise Mistake("by the caller")


class Late:
    """Answers like `first` some times, then like `then`."""

    def __init__(self, first, then=fail, count=4):
        self.first, self.then, self.left = first, then, count

    def __call__(self, *args):
        self.left -= 1
        return (self.first if self.left >= 0 else self.then)(*args)


CALLBACKS = {  # settings, and what is asked for one reply
    "should_stop": lambda late: ({}, {"should_stop": late(lambda: False)}),
    "stop_when": lambda late: ({}, {"stop_when": late(lambda token: False)}),
    "on_logits": lambda late: ({"on_logits": late(lambda tokens, logits: None)}, {}),
    "processor": lambda late: ({"logits_processors": (late(lambda text, logits: logits),)}, {}),
    "sampler": lambda late: ({"sampler": late(lambda logprobs: mx.argmax(logprobs, -1))}, {}),
}


@each_value(callback=CALLBACKS, drafter=["random trees", "eagle3", "pool"], kind=SHADOWS)
def test_a_reply_after_a_function_that_raised_is_right(callback, drafter, kind):
    engine = engine_with(drafter, kind, looks_ahead=True)
    for count in (0, 1, 3):
        settings, asked = CALLBACKS[callback](lambda first, count=count: Late(first, count=count))
        params = replace(PARAMS, **settings)
        with pytest.raises(Mistake, match="by the caller"):
            list(engine.generate(PROMPT, params, **asked))
    assert_replies_as_new(engine, kind, PARAMS)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_reply_that_is_left_open_does_not_disturb_the_next(drafter):
    """It is closed when nobody can read it any more, perhaps in the middle of a round."""
    engine = engine_with(drafter, "full", looks_ahead=True)
    left_open = engine.generate(PROMPT, PARAMS)
    for _ in range(4):
        next(left_open)
    events, told = engine.generate([*PROMPT, 9], PARAMS), []
    for number, event in enumerate(events):
        told += emitted([event])
        if number == 3:
            left_open.close()
    assert told == SHADOWS["full"].greedy([*PROMPT, 9], PARAMS.max_tokens)
    assert_replies_as_new(engine, "full", PARAMS)
