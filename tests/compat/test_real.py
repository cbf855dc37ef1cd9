"""The default model with mlx-lm's names, against mlx-lm with the same weights."""

from importlib import import_module

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer
from mlx_lm.tokenizer_utils import TokenizerWrapper as TheirTokenizer

from mlxspec import compat
from mlxspec.bench.peers import mlx_lm_model
from mlxspec.loading.fetch.default_model import has_default_model

pytestmark = [
    pytest.mark.usefixtures("own_facts"),
    pytest.mark.skipif(not has_default_model(), reason="the default model was not downloaded"),
]
PEER = import_module("mlx_lm.generate")
MESSAGES = [{"role": "user", "content": "Name the days of the week, in order."}]
LENGTH = 16


@pytest.fixture(scope="module")
def loaded():
    return compat.load("default", drafter="pool")


@pytest.fixture(scope="module")
def peer(loaded):
    engine, tokenizer = loaded
    wrapped = engine.tokenizer.wrapped
    theirs = TheirTokenizer(wrapped, BPEStreamingDetokenizer, eos_token_ids=tokenizer.eos_token_ids)
    return mlx_lm_model(engine.target.model), theirs


def test_a_chat_reply_is_that_of_mlx_lm(loaded, peer):
    prompts = [
        tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True)
        for tokenizer in (loaded[1], peer[1])
    ]
    assert prompts[0] == prompts[1]
    ours = list(compat.stream_generate(*loaded, prompts[0], LENGTH))
    theirs = list(PEER.stream_generate(*peer, prompts[0], LENGTH))
    assert [response.token for response in ours] == [response.token for response in theirs]
    assert "".join(r.text for r in ours) == "".join(r.text for r in theirs)
    np.testing.assert_allclose(ours[-1].logprobs, theirs[-1].logprobs, atol=1e-2)


def test_bias_and_penalties_give_the_reply_of_mlx_lm(loaded, peer):
    sampling = import_module("mlx_lm.sample_utils")
    arguments = {"logit_bias": {28: 2.0}, "repetition_penalty": 1.3, "presence_penalty": 0.2}
    texts = [
        generate(*model, "The cat", max_tokens=LENGTH, logits_processors=make(**arguments))
        for generate, model, make in (
            (compat.generate, loaded, compat.make_logits_processors),
            (PEER.generate, peer, sampling.make_logits_processors),
        )
    ]
    assert texts[0] == texts[1]
    bias = compat.make_logits_processors({260: 2000.0})
    assert set(_tokens(loaded, "hello", logits_processors=bias)) == {260}


def test_one_seed_of_mlx_is_one_sampled_reply(loaded):
    replies = []
    for seed in (1, 1, 2):
        mx.random.seed(seed)
        replies.append(_tokens(loaded, "Once", sampler=compat.make_sampler(0.9, 0.95)))
    assert replies[0] == replies[1] != replies[2]


def _tokens(loaded, prompt, **options):
    return [r.token for r in compat.stream_generate(*loaded, prompt, LENGTH, **options)]
