"""An open batch that is broken off at any line: its next steps write what would have followed.

A step is broken off at one line of the package after the other, as Ctrl-C and the memory may.
"""

from random import Random

from mlxspec.params import GenerationParams
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
            with breaks:
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

    def __enter__(self):
        at = self.waiting[0] - self.done if self.waiting else 0
        self.step = Breaks(KeyboardInterrupt(), at)
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


@each_value(kind=["full", "rotating"], drafter=["none", "pool", "random trees"], seed=[0, 1])
def test_replies_go_on_after_a_step_that_was_broken_off(drafter, kind, seed):
    found, whole = broken_off(drafter, kind, [params_of()] * 4, seed)
    assert found == whole == TRUE[kind]


def test_sampled_replies_go_on_after_a_step_that_was_broken_off():
    params = [params_of(index, sampling=SAMPLING["penalties"]) for index in range(4)]
    found, _ = broken_off("pool", "full", params, 1)
    alone = one_by_one("none", PROMPTS, params)
    assert found == [list(tokens) for tokens, _, _ in alone]
