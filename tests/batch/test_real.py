"""Batches of the default model: every reply is the one that its prompt gets alone.

Rows are rounded by how many stand beside them, so two replies may part where the two best tokens
are nearly equal, which is measured there; nothing else is allowed, and every such place is printed
with its gap.
"""

from functools import cache

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafting.registry import HOST_DRAFTERS
from mlxspec.engine.engine import Engine
from mlxspec.loading import load_model
from mlxspec.loading.fetch.default_model import has_default_model
from mlxspec.measure.drift import near_tie_after
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.trace.difference import is_near_tie
from mlxspec.verify.noise import Noise
from tests.support.device_facts import believed
from tests.support.tiny import emitted
from tests.support.truth import draw_by_hand

pytestmark = pytest.mark.skipif(
    not has_default_model(), reason="the default model was not downloaded"
)
PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):",
    "1, 2, 3, 4, 5, 6, 7,",
    "Once upon a time, in a village by the sea, there lived a fisherman who",
]
TOKENS = 12
SAMPLING = {"greedy": SamplingParams(), "sampled": SamplingParams(temperature=0.8)}


@cache
def loaded():
    with believed("cpu"):  # what would stay packed, or be in half precision, is float32 there
        return load_model()


def engine(drafter):
    return Engine(Decoder(loaded().model), HOST_DRAFTERS[drafter](), loaded().tokenizer)


def settings(sampling):
    return [
        GenerationParams(
            max_tokens=TOKENS,
            sampling=SAMPLING[sampling],
            seed=seed,
            exact_seed=True,
            ignore_eos=True,
        )
        for seed in range(len(PROMPTS))
    ]


@cache
def alone(sampling):
    """What a plain engine replies to one prompt after the other."""
    plain = engine("none")
    pairs = zip(PROMPTS, settings(sampling), strict=True)
    return [emitted(plain.generate(prompt, params)) for prompt, params in pairs]


def gap(prefix, params):
    """By how much the best token is better than the next, drawn with the noise of its place.

    And by how much a rounding can make it worse.
    """
    decoder = Decoder(loaded().model)
    decoder.observe(prefix)
    near_tie = near_tie_after(decoder, prefix)
    logits = np.array(decoder.next_logits().astype(mx.float32), np.float64)
    if params.sampling.is_greedy:
        second, first = np.sort(logits)[-2:]
        return float(first - second), near_tie
    noise = Noise.of_seed(params.seed).at(len(prefix)).gumbel(1, len(logits))[0]
    warm = params.sampling.temperature
    return draw_by_hand(np.exp((logits - logits.max()) / warm), noise)[1], near_tie / warm


@pytest.mark.parametrize(
    ("drafter", "sampling"), [("none", "greedy"), ("pool", "greedy"), ("pool", "sampled")]
)
def test_replies_are_those_that_the_prompts_get_alone(drafter, sampling):
    replies = list(engine(drafter).generate_batch(PROMPTS, settings(sampling), batch_size=3))
    assert [reply.fault for reply in replies] == [""] * len(PROMPTS)
    for index, expected in enumerate(alone(sampling)):
        got = list(replies[index].tokens)
        assert len(got) == len(expected) == TOKENS
        if got == expected:
            continue
        place = next(i for i in range(TOKENS) if got[i] != expected[i])
        prefix = loaded().tokenizer.encode(PROMPTS[index]) + expected[:place]
        apart, near_tie = gap(prefix, settings(sampling)[index])
        print(f"{PROMPTS[index]!r} parts at token {place}, where the best are {apart:.1e} apart")
        assert is_near_tie(apart, near_tie), (
            f"{PROMPTS[index]!r}: {expected} alone, {got} in a batch"
        )
