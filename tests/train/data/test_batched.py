"""Many replies at once must be the replies that one at a time would give."""

import numpy as np
import pytest

from mlxspec.kv import storage
from mlxspec.loading import LoadedModel
from mlxspec.train.data.dialogue import Request
from mlxspec.train.data.making import run_tasks
from tests.support.tiny import ToyTokenizer, tiny_model
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
MODELS = {
    "llama": {},
    "qwen2": {"family": "qwen2", "num_attention_heads": 4, "num_key_value_heads": 2},
    "windows": {"family": "mistral", "sliding_window": 5},
}


def never(reply):
    return False


def single(prompt, max_tokens, temperature=0.0, seed=0, is_over=never):
    """A task of one request that returns the reply."""
    return (yield Request(prompt, max_tokens, temperature, seed, is_over))


def loaded(model, tokenizer=None):
    return LoadedModel(model, tokenizer or ToyTokenizer(), "tiny", "float32")


@pytest.mark.parametrize(("name", "batch_size"), [("llama", 1), *((name, 3) for name in MODELS)])
def test_greedy_replies_equal_decoding_one_by_one(name, batch_size):
    model = tiny_model(**MODELS[name])
    target = Target(model)
    lengths = [14, 1, 6, 9, 12, 3, 8]
    tasks = [single(*pair) for pair in zip(PROMPTS, lengths, strict=True)]
    replies = dict(run_tasks(loaded(model), tasks, batch_size))
    expected = [target.greedy(*pair) for pair in zip(PROMPTS, lengths, strict=True)]
    assert [replies[index] for index in range(len(PROMPTS))] == expected


def test_texts_outgrow_the_room_reserved_for_them(monkeypatch):
    monkeypatch.setattr(storage, "GROWTH", 4)
    model = tiny_model()
    replies = dict(run_tasks(loaded(model), [single([1, 2, 3], 12), single([4] * 9, 7)], 2))
    target = Target(model)
    assert replies == {0: target.greedy([1, 2, 3], 12), 1: target.greedy([4] * 9, 7)}


def test_a_reply_may_be_asked_for_in_the_light_of_another():
    model = tiny_model()
    target = Target(model)

    def chat(prompt):
        first = yield from single(prompt, 5)
        second = yield from single([*prompt, *first, 0, 1], 6)
        return first, second

    replies = dict(run_tasks(loaded(model), [chat(prompt) for prompt in PROMPTS[:4]], 2))
    for index, prompt in enumerate(PROMPTS[:4]):
        first = target.greedy(prompt, 5)
        assert replies[index] == (first, target.greedy([*prompt, *first, 0, 1], 6))


def test_a_sampled_reply_does_not_depend_on_its_neighbours():
    model = tiny_model()

    def replies(batch_size):
        tasks = [single(prompt, 10, 1.5, seed) for seed, prompt in enumerate(PROMPTS)]
        return dict(run_tasks(loaded(model), tasks, batch_size))

    alone = replies(1)
    assert replies(3) == alone
    assert alone[0] != alone[3]  # one prompt, two seeds


def test_a_reply_ends_with_the_token_that_is_the_last():
    model = tiny_model()
    whole = Target(model).greedy([1, 2, 3], 12)
    task = single([1, 2, 3], 12, is_over=lambda reply: len(reply) > 2 and reply[-1] == whole[4])
    [(_, reply)] = run_tasks(loaded(model), [task], 2)
    assert reply == whole[: whole.index(whole[4], 2) + 1]


def test_tasks_come_in_the_order_in_which_they_end():
    tasks = [single([1], 9), single([2], 3), single([3], 5)]
    assert [index for index, _ in run_tasks(loaded(tiny_model()), tasks, 3)] == [1, 2, 0]


def test_a_task_may_ask_for_nothing():
    def mute(result):
        return result
        yield

    model = tiny_model()
    tasks = [mute("a"), single([1, 2], 2), mute("b"), mute("c")]
    results = dict(run_tasks(loaded(model), tasks, 2))
    assert results == {0: "a", 1: Target(model).greedy([1, 2], 2), 2: "b", 3: "c"}
    assert list(run_tasks(loaded(model), [], 2)) == []


def test_tasks_are_begun_when_there_is_room_for_them():
    begun = []

    def tasks():
        for index in range(5):
            begun.append(index)
            yield single([1], 4)

    next(run_tasks(loaded(tiny_model()), tasks(), 2))
    assert begun == [0, 1]


@pytest.mark.parametrize("temperature", [0.7, 1.5])
def test_draws_follow_the_law(temperature):
    model, count = tiny_model(vocab_size=6), 300
    logits = Target(model).logits((1, 2, 3)).astype(np.float64)
    probs = np.exp((logits - logits.max()) / temperature)
    probs /= probs.sum()
    tasks = [single([1, 2, 3], 1, temperature, seed) for seed in range(count)]
    drawn = [reply[0] for _, reply in run_tasks(loaded(model), tasks, 100)]
    found = np.bincount(drawn, minlength=6) / count
    assert (abs(found - probs) <= 4 * np.sqrt(probs * (1 - probs) / count)).all()


def test_nothing_but_the_request_ends_a_reply():
    """Not even an end token: a task has to be told of it."""

    class Ending(ToyTokenizer):
        eos_token_ids = tuple(range(24))

    model = tiny_model()
    [(_, reply)] = run_tasks(loaded(model, Ending()), [single([1, 2, 3], 5)], 1)
    assert reply == Target(model).greedy([1, 2, 3], 5)
