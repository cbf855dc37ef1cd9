"""Many replies at once must be the replies that one at a time would give."""

import numpy as np
import pytest

from mlxspec.train import batched
from mlxspec.train.batched import BatchedDecoder, Request, draw_token, run_tasks
from tests.support.tiny import tiny_model
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
    rng = np.random.default_rng(seed)
    return (yield Request(prompt, max_tokens, temperature, rng, is_over))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("num_slots", [1, 3])
def test_greedy_replies_equal_decoding_one_by_one(name, num_slots):
    model = tiny_model(**MODELS[name])
    target = Target(model)
    lengths = [14, 1, 6, 9, 12, 3, 8]
    tasks = [single(*pair) for pair in zip(PROMPTS, lengths, strict=True)]
    replies = dict(run_tasks(model, tasks, num_slots))
    expected = [target.greedy(*pair) for pair in zip(PROMPTS, lengths, strict=True)]
    assert [replies[index] for index in range(len(PROMPTS))] == expected


def test_texts_outgrow_the_room_reserved_for_them(monkeypatch):
    monkeypatch.setattr(batched, "GROWTH", 4)
    model = tiny_model()
    replies = dict(run_tasks(model, [single([1, 2, 3], 12), single([4] * 9, 7)], 2))
    target = Target(model)
    assert replies == {0: target.greedy([1, 2, 3], 12), 1: target.greedy([4] * 9, 7)}


def test_a_reply_may_be_asked_for_in_the_light_of_another():
    model = tiny_model()
    target = Target(model)

    def chat(prompt):
        first = yield from single(prompt, 5)
        second = yield from single([*prompt, *first, 0, 1], 6)
        return first, second

    replies = dict(run_tasks(model, [chat(prompt) for prompt in PROMPTS[:4]], 2))
    for index, prompt in enumerate(PROMPTS[:4]):
        first = target.greedy(prompt, 5)
        assert replies[index] == (first, target.greedy([*prompt, *first, 0, 1], 6))


def test_only_what_differs_from_the_text_in_a_slot_is_read(monkeypatch):
    model = tiny_model()
    decoder, read = BatchedDecoder(model, 1), []
    forward = type(model).hidden_states

    def record(self, tokens, *rest, **options):
        read.append(tokens.shape[1])
        return forward(self, tokens, *rest, **options)

    monkeypatch.setattr(type(model), "hidden_states", record)
    for prompt in ([1, 2, 3, 4], [1, 2, 5, 6, 7], [1, 2, 5], [1, 2, 5]):
        decoder.read(0, prompt)
    assert read == [4, 3, 1, 1]


def test_a_sampled_reply_does_not_depend_on_its_neighbours():
    model = tiny_model()

    def replies(num_slots):
        tasks = [single(prompt, 10, 1.5, seed) for seed, prompt in enumerate(PROMPTS)]
        return dict(run_tasks(model, tasks, num_slots))

    alone = replies(1)
    assert replies(3) == alone
    assert alone[0] != alone[3]  # one prompt, two seeds


def test_a_reply_ends_with_the_token_that_is_the_last():
    model = tiny_model()
    whole = Target(model).greedy([1, 2, 3], 12)
    task = single([1, 2, 3], 12, is_over=lambda reply: len(reply) > 2 and reply[-1] == whole[4])
    [(_, reply)] = run_tasks(model, [task], 2)
    assert reply == whole[: whole.index(whole[4], 2) + 1]


def test_tasks_come_in_the_order_in_which_they_end():
    tasks = [single([1], 9), single([2], 3), single([3], 5)]
    assert [index for index, _ in run_tasks(tiny_model(), tasks, 3)] == [1, 2, 0]


def test_a_task_may_ask_for_nothing():
    def mute(result):
        return result
        yield

    model = tiny_model()
    tasks = [mute("a"), single([1, 2], 2), mute("b"), mute("c")]
    results = dict(run_tasks(model, tasks, 2))
    assert results == {0: "a", 1: Target(model).greedy([1, 2], 2), 2: "b", 3: "c"}


def test_no_tasks_give_no_results():
    assert list(run_tasks(tiny_model(), [], 2)) == []


def test_tasks_are_begun_when_there_is_room_for_them():
    begun = []

    def tasks():
        for index in range(5):
            begun.append(index)
            yield single([1], 4)

    next(run_tasks(tiny_model(), tasks(), 2))
    assert begun == [0, 1]


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_draws_follow_the_law(temperature):
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05, 1e-30], np.float32))
    probs = np.exp(logits.astype(np.float64) / temperature)
    probs /= probs.sum()
    rng, count = np.random.default_rng(1), 20_000
    draws = [draw_token(logits, temperature, rng) for _ in range(count)]
    found = np.bincount(draws, minlength=5) / count
    assert (abs(found - probs) <= 4.5 * np.sqrt(probs * (1 - probs) / count) + 1e-9).all()


def test_a_token_of_no_mass_is_never_drawn():
    logits = np.array([-np.inf, 0, -np.inf, -np.inf], np.float32)

    class Edge:
        def __init__(self, value):
            self.random = lambda: value

    assert draw_token(logits, 1.0, Edge(0.0)) == 1
    assert draw_token(logits, 1.0, Edge(1 - 2**-53)) == 1


def test_rare_tokens_are_not_lost_among_many():
    """Of 2**18 tokens all but the first have the same mass; float32 sums would skip some."""
    logits = np.full(2**18, -18.0, np.float32)
    logits[0] = 0.0

    class Fixed:
        def random(self):
            share = np.exp(-18.0)
            total = 1 + (2**18 - 1) * share
            return (1 + 1000.5 * share) / total

    assert abs(draw_token(logits, 1.0, Fixed()) - 1001) <= 1


def test_greedy_takes_the_lowest_of_equals():
    logits = np.array([0.0, 2.0, 1.0, 2.0], np.float32)
    assert draw_token(logits, 0.0, np.random.default_rng(0)) == 1
