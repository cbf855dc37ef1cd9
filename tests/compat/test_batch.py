"""`batch_generate` against mlx-lm's, with the same weights."""

from importlib import import_module

import mlx.core as mx
import numpy as np
import pytest

from mlxspec import compat
from tests.support.adversaries import UniformChain
from tests.support.peers import make_pair

PEER = import_module("mlx_lm.generate")
TEXTS = ["the cat", "and the mat was", "a", "the cat sat on the mat, and the cat was fat"]
TOLD = {"return_token_ids": True, "return_logprobs": True}


@pytest.fixture
def pair():
    return make_pair()


def prompts(pair):
    return [pair.tokenizer.encode(text) for text in TEXTS]


def ours(pair, *args, **options):
    return compat.batch_generate(pair.engine, pair.tokenizer, prompts(pair), *args, **options)


def theirs(pair, *args, **options):
    return PEER.batch_generate(
        pair.their_model, pair.their_tokenizer, prompts(pair), *args, **options
    )


@pytest.mark.parametrize("max_tokens", [7, [2, 9, 1, 5]])
def test_replies_are_those_of_mlx_lm(pair, max_tokens):
    options = {"max_tokens": max_tokens, **TOLD}
    found, expected = ours(pair, **options), theirs(pair, **options)
    assert found.texts == expected.texts
    assert found.token_ids == expected.token_ids
    for one, other in zip(found.logprobs, expected.logprobs, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-3)
    assert found.stats.prompt_tokens == sum(map(len, prompts(pair)))
    assert found.stats.generation_tokens == expected.stats.generation_tokens
    for name in ("prompt_tps", "generation_tps", "peak_memory", "prompt_time", "wall_time"):
        assert getattr(found.stats, name) > 0


def test_stop_tokens_end_replies_and_are_left_out(pair):
    said = ours(pair, max_tokens=9, return_token_ids=True).token_ids
    for tokenizer in (pair.tokenizer, pair.their_tokenizer):
        tokenizer.add_eos_token(str(said[0][4]))
    options = {"max_tokens": 9, **TOLD}
    found, expected = ours(pair, **options), theirs(pair, **options)
    assert found.token_ids == expected.token_ids
    assert [len(row) for row in found.logprobs] == [len(row) for row in expected.logprobs]
    stopping = make_pair(stops=[said[0][4]])
    assert ours(stopping, **options).token_ids == expected.token_ids


def test_bias_and_samplers_count_in_a_batch(pair):
    bias = compat.make_logits_processors({5: 2000.0, 1: -20.0})
    assert ours(pair, max_tokens=1, logits_processors=bias, return_token_ids=True).token_ids == [
        [5]
    ] * len(TEXTS)
    second = {"sampler": lambda logprobs: mx.argsort(-logprobs, axis=-1)[..., 1]}
    assert ours(pair, max_tokens=6, **second).texts == theirs(pair, max_tokens=6, **second).texts


def test_replies_continue_prompt_caches_and_leave_them(pair):
    first = ours(pair, max_tokens=3, return_prompt_caches=True)
    kept = [list(cache[0].tokens) for cache in first.caches]
    options = {"max_tokens": 4, "return_token_ids": True}
    again, expected = (
        compat.batch_generate(pair.engine, pair.tokenizer, given, caches, **options)
        for given, caches in (
            ([[5, 6]] * len(TEXTS), first.caches),
            ([[*tokens, 5, 6] for tokens in kept], None),
        )
    )
    assert again.token_ids == expected.token_ids
    assert [cache[0].tokens for cache in first.caches] == kept
    starts = [tokens[: len(prompt)] for tokens, prompt in zip(kept, prompts(pair), strict=True)]
    assert starts == prompts(pair)
    assert again.stats.prompt_tokens == 2 * len(TEXTS)
    small = ours(pair, max_tokens=3, return_prompt_caches=True, max_kv_size=12)
    assert [cache[0].max_kv_size for cache in small.caches] == [12] * len(TEXTS)


def test_sampled_replies_to_one_prompt_differ(pair):
    mx.random.seed(1)
    sampler = compat.make_sampler(temp=1.5)
    found = compat.batch_generate(
        pair.engine, pair.tokenizer, [[1, 2, 3]] * 4, max_tokens=8, sampler=sampler
    )
    assert len(set(found.texts)) == 4


def test_a_drafter_for_one_sequence_makes_way(pair):
    expected = ours(pair, max_tokens=6).texts
    drafter = UniformChain(pair.engine.target.vocab_size)
    drawing = make_pair(drafter)
    assert ours(drawing, max_tokens=6).texts == expected
    assert drawing.engine.drafter is drafter


def test_progress_is_printed_on_request_and_what_is_not_requested_is_not_returned(pair, capsys):
    ours(pair, max_tokens=2, verbose=True, completion_batch_size=2)
    told = capsys.readouterr().out
    assert "Finished processing 4/4" in told
    assert "tokens-per-sec" in told
    found = ours(pair, max_tokens=2)
    assert (found.caches, found.token_ids, found.logprobs) == (None, None, None)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prefill_batch_size", 4),
        ("prompt_cache", []),
        ("prompt_progress_callback", print),
        ("stream", mx.default_stream(mx.default_device())),
        ("kv_bits", 6),
    ],
)
def test_an_unsupported_argument_is_refused_by_name(pair, name, value):
    with pytest.raises(TypeError, match=f"^{name}.* is not supported here"):
        ours(pair, **{name: value})


@pytest.mark.parametrize("name", ["max_tokens", "prompt_caches"])
def test_a_list_needs_a_value_for_every_prompt(pair, name):
    with pytest.raises(ValueError, match=f"got 1 {name} for 4 prompts"):
        ours(pair, **{name: [1]})


def test_an_error_in_a_logits_processor_is_raised_as_mlx_lm_raises_it(pair):
    def broken(tokens, logits):
        raise KeyError("by the caller")

    for generate in (ours, theirs):
        with pytest.raises(KeyError, match="by the caller"):
            generate(pair, max_tokens=4, logits_processors=[broken])
