"""An open batch that is broken off at any line: its next steps write what would have followed.

A step is broken off at one line of the package after the other, as Ctrl-C and the memory may.
"""

from contextlib import nullcontext
from dataclasses import replace
from random import Random

import pytest

from mlxspec.batch.decoder import BatchDecoder
from mlxspec.batch.open import OpenBatch
from mlxspec.batch.writer import BatchWriter
from mlxspec.kv.prefixes import PrefixCache
from mlxspec.params import GenerationParams
from mlxspec.reply.continuation import Continuation
from mlxspec.reply.reply import Reply
from mlxspec.reply.writer import ReplyWriter
from tests.engine.test_interrupts import Breaks
from tests.support.batches import DRAFTERS, MODEL, PROMPTS, SAMPLING, one_by_one
from tests.support.pairwise import each_value
from tests.support.tiny import make_engine
from tests.support.truth import Computed, Target

LENGTH, NUM_BREAKS = 10, 6
PROMPTS = [PROMPTS[index] for index in (0, 1, 3, 6)]
JOINS = {0: 2, 3: 4}  # replies that are there from a step on
TRUE = Computed(lambda kind: [Target(MODEL, kind).greedy(prompt, LENGTH) for prompt in PROMPTS])


def params_of(seed=0, **changes):
    return GenerationParams(max_tokens=LENGTH, num_draft_tokens=3, seed=seed, **changes)


def opened(drafter, kind):
    engine = make_engine(MODEL, DRAFTERS[drafter](), kind)
    return engine.open_batch(batch_size=3, rows_per_round=24, prefix_bytes=1 << 20)


def written(batch, params, breaks):
    """The tokens of all replies; `breaks` is entered for each step, and may break it off."""
    replies, step = [], 0
    while step <= max(JOINS) or batch.num_replies:
        while len(replies) < JOINS.get(step, 0):
            index = len(replies)
            replies.append(batch.join(PROMPTS[index], params[index]))
        try:
            with breaks():
                batch.step()
        except KeyboardInterrupt:
            continue
        step += 1
    assert [reply.error for reply in replies] == [None] * len(PROMPTS)
    return [list(reply.finished().tokens) for reply in replies]


class At:
    """Breaks off the steps of a batch at some lines of the whole work, the first one first."""

    def __init__(self, lines):
        self.waiting, self.done = sorted(lines), 0

    def __call__(self):
        self.step = Breaks(KeyboardInterrupt(), self.waiting[0] - self.done if self.waiting else 0)
        return self

    def __enter__(self):
        self.step.__enter__()

    def __exit__(self, kind, *_):
        self.step.__exit__()
        self.done += self.step.lines
        if kind is not None:
            del self.waiting[0]


def broken_off(drafter, kind, params, seed):
    whole = At([])
    true = written(opened(drafter, kind), params, whole)
    random = Random(seed)
    at = At([random.randint(1, whole.done) for _ in range(NUM_BREAKS)])
    found = written(opened(drafter, kind), params, at)
    assert len(at.waiting) < NUM_BREAKS // 2
    return found, true


@pytest.mark.parametrize("kind", ["full", "rotating"])
@pytest.mark.parametrize("drafter", ["none", "pool", "random trees"])
@pytest.mark.parametrize("seed", range(2))
def test_replies_go_on_after_a_step_that_was_broken_off(drafter, kind, seed):
    found, whole = broken_off(drafter, kind, [params_of()] * 4, seed)
    assert found == whole == TRUE[kind]


@pytest.mark.parametrize("seed", range(2))
def test_sampled_replies_go_on_after_a_step_that_was_broken_off(seed):
    params = [params_of(index, sampling=SAMPLING["penalties"]) for index in range(4)]
    found, _ = broken_off("pool", "full", params, seed)
    alone = one_by_one("none", PROMPTS, params)
    assert found == [list(tokens) for tokens, _, _ in alone]


_METHODS = [
    (BatchWriter, "add"),
    (BatchWriter, "move_to_reader"),
    *((BatchWriter, part) for part in ("propose", "verify", "take", "commit", "update")),
    *((ReplyWriter, part) for part in ("propose", "verify", "take", "commit", "update")),
    (ReplyWriter, "read"),
    (ReplyWriter, "store"),
    (ReplyWriter, "leave"),
    (BatchDecoder, "forward_trees"),
    (BatchDecoder, "commit"),
    (BatchDecoder, "join"),
    (PrefixCache, "add"),
    (OpenBatch, "_release"),
    (Reply, "tell"),
    (Continuation, "_emit"),
]
METHODS = {f"{kind.__name__}.{name}": (kind, name) for kind, name in _METHODS}


@each_value(method=METHODS, is_after=[False, True])
def test_replies_go_on_after_an_interrupt_of_any_part_of_a_step(method, is_after, monkeypatch):
    kind, name = METHODS[method]
    act, calls = getattr(kind, name), []

    def interrupted(*args, **named):
        calls.append(args)
        breaks = len(calls) in (1, 4, 11)
        if breaks and not is_after:
            raise KeyboardInterrupt
        done = act(*args, **named)
        if breaks:
            raise KeyboardInterrupt
        return done

    batch = opened("pool", "full")
    monkeypatch.setattr(kind, name, interrupted)
    lengths = (LENGTH, 3, 2, LENGTH)  # the first and the last one are alone for some rounds
    params = [replace(params_of(), max_tokens=length) for length in lengths]
    true = [reply[:length] for reply, length in zip(TRUE["full"], lengths, strict=True)]
    assert written(batch, params, nullcontext) == true
    assert calls
