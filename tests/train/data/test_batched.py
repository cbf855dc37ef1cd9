"""Many replies at once must be the replies that one at a time would give."""

from itertools import chain

import pytest

from mlxspec.loading import LoadedModel
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.train.data.dialogue import Request
from mlxspec.train.data.making import run_tasks
from tests.support.tiny import ToyTokenizer, emitted, make_engine, tiny_model
from tests.support.truth import Target

PROMPTS = [
    [1, 2, 3],
    [4],
    [1, 2, 3, 5, 6, 7, 8, 9],
    [1, 2, 3],
    [9, 8, 7, 6, 5],
    [1, 2, 3, 5, 6, 0, 0],
    [11, 12],
]
MODEL = tiny_model()
TARGET = Target(MODEL)


def never(reply):
    return False


def single(prompt, max_tokens, temperature=0.0, seed=0, is_over=never):
    """A task of one request that returns the reply."""
    return (yield Request(prompt, max_tokens, temperature, seed, is_over))


def run(tasks, batch_size, tokenizer=None):
    loaded = LoadedModel(MODEL, tokenizer or ToyTokenizer(), "tiny", "float32")
    return chain.from_iterable(run_tasks(loaded, tasks, batch_size))


@pytest.mark.parametrize("batch_size", [1, 3])
def test_greedy_replies_are_those_of_the_target(batch_size):
    pairs = list(zip(PROMPTS, [14, 1, 6, 9, 12, 3, 8], strict=True))
    replies = dict(run([single(*pair) for pair in pairs], batch_size))
    assert replies == {index: TARGET.greedy(*pair) for index, pair in enumerate(pairs)}


def test_a_reply_may_be_asked_for_in_the_light_of_another():
    def chat(prompt):
        first = yield from single(prompt, 5)
        second = yield from single([*prompt, *first, 0, 1], 6)
        return first, second

    replies = dict(run([chat(prompt) for prompt in PROMPTS[:4]], 2))
    for index, prompt in enumerate(PROMPTS[:4]):
        first = TARGET.greedy(prompt, 5)
        assert replies[index] == (first, TARGET.greedy([*prompt, *first, 0, 1], 6))


def test_a_sampled_reply_is_that_of_the_engine_with_its_seed():
    replies = dict(run([single(p, 10, 1.5, seed) for seed, p in enumerate(PROMPTS)], 3))
    for seed, prompt in enumerate(PROMPTS):
        params = GenerationParams(10, sampling=SamplingParams(temperature=1.5), seed=seed)
        assert replies[seed] == emitted(make_engine(MODEL, None).generate(prompt, params))
    assert replies[0] != replies[3]  # one prompt, two seeds


def test_a_reply_ends_with_the_token_that_is_the_last():
    whole = TARGET.greedy([1, 2, 3], 12)
    task = single([1, 2, 3], 12, is_over=lambda reply: len(reply) > 2 and reply[-1] == whole[4])
    [(_, reply)] = run([task], 2)
    assert reply == whole[: whole.index(whole[4], 2) + 1]


def test_nothing_but_the_request_ends_a_reply():
    """Not even an end token: a task has to be told of it."""

    class Ending(ToyTokenizer):
        eos_token_ids = tuple(range(24))

    [(_, reply)] = run([single([1, 2, 3], 5)], 1, Ending())
    assert reply == TARGET.greedy([1, 2, 3], 5)


def test_tasks_come_in_the_order_in_which_they_end():
    tasks = [single([1], 9), single([2], 3), single([3], 5)]
    assert [index for index, _ in run(tasks, 3)] == [1, 2, 0]


def test_a_task_may_ask_for_nothing():
    def mute(result):
        return result
        yield

    results = dict(run([mute("a"), single([1, 2], 2), mute("b"), mute("c")], 2))
    assert results == {0: "a", 1: TARGET.greedy([1, 2], 2), 2: "b", 3: "c"}
    assert list(run([], 2)) == []


def test_tasks_are_begun_when_there_is_room_for_them():
    begun = []

    def tasks():
        for index in range(5):
            begun.append(index)
            yield single([1], 4)

    next(run(tasks(), 2))
    assert begun == [0, 1]
