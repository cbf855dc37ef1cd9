"""Threads take turns: any of them may use an engine, whole replies or a step each."""

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import takewhile

import mlx.core as mx
import pytest

from mlxspec.device import core_split, exponential, turns
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.params import GenerationParams, SamplingParams
from tests.engine.test_interrupts import DRAFTERS, PROMPT, SHADOWS, engine_with
from tests.support.batches import MODEL, PROMPTS, REPLIES
from tests.support.pairwise import each_value
from tests.support.paths import ROOT
from tests.support.tiny import emitted, make_engine

PARAMS = GenerationParams(max_tokens=12, num_draft_tokens=4)
SAMPLED = replace(
    PARAMS, sampling=SamplingParams(temperature=1.0, presence_penalty=0.5), seed=3, exact_seed=True
)


def in_a_thread(act, *args):
    """Call something in a thread of its own, which is over then."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(act, *args).result()


def reply(engine, params=PARAMS, prompt=PROMPT):
    return emitted(engine.generate(prompt, params))


@each_value(drafter=DRAFTERS, kind=SHADOWS, looks_ahead=[False, True])
def test_a_reply_in_a_thread_leaves_an_engine_for_every_other(drafter, kind, looks_ahead):
    engine = engine_with(drafter, kind, looks_ahead=looks_ahead)
    told = SHADOWS[kind].greedy(PROMPT, 12)
    assert in_a_thread(reply, engine) == told
    assert reply(engine) == told
    longer = [*PROMPT, *told, 5]
    assert in_a_thread(reply, engine, PARAMS, longer) == SHADOWS[kind].greedy(longer, 12)
    engine.target.rollback_to(len(PROMPT))  # what is left can be computed with here
    assert engine.target.next_logits().tolist()


@each_value(drafter=DRAFTERS, kind=SHADOWS, looks_ahead=[False, True])
def test_every_step_of_a_reply_may_be_taken_in_another_thread(drafter, kind, looks_ahead):
    engine = engine_with(drafter, kind, looks_ahead=looks_ahead)
    for params in (PARAMS, SAMPLED):
        alone = reply(engine_with(drafter, kind), params)
        steps = engine.generate(PROMPT, params)
        events = list(iter(lambda it=steps: in_a_thread(next, it, None), None))
        assert emitted(events) == alone


def test_an_asynchronous_server_reads_two_replies_at_once():
    engine = engine_with("pool", "full")
    prompts = [PROMPT, PROMPT[::-1]]

    async def read(prompt):
        steps, events = engine.generate(prompt, PARAMS), []
        while (event := await asyncio.to_thread(next, steps, None)) is not None:
            events.append(event)
        return emitted(events)

    async def read_all():
        return await asyncio.gather(*map(read, prompts))

    assert asyncio.run(read_all()) == [SHADOWS["full"].greedy(prompt, 12) for prompt in prompts]


@each_value(drafter=DRAFTERS, kind=SHADOWS)
def test_threads_at_once_get_the_replies_that_they_get_alone(drafter, kind):
    engine = engine_with(drafter, kind, looks_ahead=True)
    prompts = [PROMPT, PROMPT[::-1], [*PROMPT, 9], PROMPT]
    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(lambda prompt: reply(engine, PARAMS, prompt), prompts))
    assert told == [SHADOWS[kind].greedy(prompt, 12) for prompt in prompts]
    assert reply(engine) == told[0]


def test_batches_and_replies_of_several_threads_do_not_disturb_each_other():
    engine = make_engine(MODEL, SuffixDrafter())

    def read(size):
        replies = engine.generate_batch(PROMPTS, PARAMS, batch_size=size)
        steps = iter(lambda: in_a_thread(next, replies, None), None)
        return [list(reply.tokens) for reply in steps]

    with ThreadPoolExecutor(3) as pool:
        single = pool.submit(reply, engine)
        batches = list(pool.map(read, (2, 3)))
    assert batches == [[full[:12] for full in REPLIES["llama"]]] * 2
    assert single.result() == SHADOWS["full"].greedy(PROMPT, 12)


def test_streams_of_a_turn_are_shared_and_others_are_a_thread_s_own(monkeypatch):
    monkeypatch.setattr(core_split._split, "count", 2)
    monkeypatch.setattr(core_split._split, "is_open", True)
    monkeypatch.setattr(core_split._split, "_own", "own")
    monkeypatch.setattr(core_split._split, "_shared", "shared")
    with turns.device_turn():
        shared = core_split._split.second
    assert core_split._split.second == "own"

    def others():
        with turns.device_turn():
            return core_split._split.second

    assert in_a_thread(others) == shared == "shared"


# ---- turns -----------------------------------------------------------------------------------


def test_what_a_turn_leaves_lazy_another_thread_computes():
    def leave():
        with turns.device_turn():
            return mx.ones((3, 3)) @ mx.ones((3, 3))

    left = in_a_thread(leave)
    with turns.device_turn():
        assert (left + 1).tolist() == [[4.0] * 3] * 3


def turn_of_another_thread(then):
    """A thread that has a turn, and the event that lets it go; it says whether that came."""
    has_begun, may_end = threading.Event(), threading.Event()

    def hold():
        with turns.device_turn():
            has_begun.set()
            then(may_end.wait(10))

    holder = threading.Thread(target=hold)
    holder.start()
    has_begun.wait(10)
    return holder, may_end


def test_a_turn_waits_for_the_one_of_another_thread():
    order = []
    holder, may_end = turn_of_another_thread(lambda was_let_go: order.append("held"))
    waiting = threading.Thread(
        target=lambda: [reply(engine_with("pool", "full")), order.append("next")]
    )
    waiting.start()
    with turns.free_turn() as is_free:
        assert not is_free
    assert order == []
    may_end.set()
    for thread in (holder, waiting):
        thread.join(60)
    assert order == ["held", "next"]


def test_a_turn_within_a_turn_is_part_of_it():
    with turns.device_turn(), turns.device_turn(), turns.free_turn() as is_free:
        assert is_free
        assert turns.is_mine()
    assert not turns.is_mine()


def test_wherever_a_turn_is_broken_off_it_is_over():
    def break_off_at(line):
        lines = iter(range(line + 1))

        def at_line(frame, event, arg):
            if frame.f_code.co_filename != turns.__file__:
                return None
            if event == "line" and next(lines, None) == line:
                raise KeyboardInterrupt
            return at_line

        sys.settrace(at_line)
        try:
            with turns.device_turn():
                pass
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(None)
        return False

    broken = list(takewhile(break_off_at, range(50)))
    assert 3 < len(broken) < 50
    assert not turns.is_mine()


def test_a_reply_that_is_dropped_while_another_thread_computes_waits_for_nobody():
    engine = engine_with("pool", "full", looks_ahead=True)
    held = engine.generate(PROMPT, PARAMS)
    for _ in range(4):
        next(held)
    was_let_go = []
    holder, may_end = turn_of_another_thread(was_let_go.append)
    held.close()  # as the garbage collector does, in any thread
    may_end.set()
    holder.join()
    assert was_let_go == [True]
    assert reply(engine) == SHADOWS["full"].greedy(PROMPT, 12)


# ---- the end of a process --------------------------------------------------------------------

_ENDING = """
import sys, threading, time
import mlxspec, mlx.core as mx
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.params import GenerationParams
from tests.support.tiny import make_engine, tiny_model

has_begun = threading.Event()

def work():
    model = tiny_model()  # its first weights are drawn with the random state of this thread
    model.set_dtype(mx.float16)  # in half precision MLX compiles its functions
    mx.eval(model.parameters())
    engine = make_engine(model, SuffixDrafter())
    for _ in engine.generate([1, 2], GenerationParams(max_tokens=COUNT)):
        has_begun.set()

thread = threading.Thread(target=work, daemon=IS_DAEMON)
thread.start()
has_begun.wait() if IS_DAEMON else thread.join()
"""


@pytest.mark.parametrize(
    ("is_daemon", "count"), [(False, 9), (True, 400)], ids=["joined", "daemon"]
)
def test_a_process_whose_threads_used_an_engine_ends_well(is_daemon, count):
    code = _ENDING.replace("IS_DAEMON", str(is_daemon)).replace("COUNT", str(count))
    for _ in range(4):  # without care half of them abort
        ended = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
        )
        assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("is_daemon", [False, True])
def test_a_daemon_thread_keeps_nothing_that_mlx_compiled(is_daemon, monkeypatch):
    compiled, results = [], []
    usual = exponential.nn.silu
    monkeypatch.setattr(exponential.nn, "silu", lambda x: compiled.append(x) or usual(x))
    x = mx.array([-2.0, 0.0, 3.0], mx.float16)
    mx.eval(x)

    def compute():
        results.append(exponential.silu(x).tolist())

    thread = threading.Thread(target=compute, daemon=is_daemon)
    thread.start()
    thread.join()
    assert bool(compiled) is not is_daemon
    assert results[0] == pytest.approx([-0.2384, 0.0, 2.858], abs=2e-3)
