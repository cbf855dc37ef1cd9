"""mlx-lm's sampler as `SamplingParams`, so that drafts can be verified, and its processors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mlx.core as mx
from mlx_lm import sample_utils

from mlxspec.device.backend import values
from mlxspec.params import LogitsProcessor, SamplingParams, checks
from mlxspec.verify.distribution import NodeDistributions
from mlxspec.verify.noise import gumbel


@dataclass(frozen=True)
class SamplerLaw(SamplingParams):
    """`SamplingParams` that can be called, as mlx-lm's samplers are."""

    def __call__(self, logprobs: mx.array) -> mx.array:
        """Return (n,) int32 tokens, one sample from each row of (n, V) log-probabilities."""
        num_rows, vocab_size = logprobs.shape
        noise = gumbel(num_rows, vocab_size, mx.random.key(random_seed()))
        return NodeDistributions(self, logprobs).draw(noise)


def make_sampler(
    temp: float = 0.0,
    top_p: float = 0.0,
    min_p: float = 0.0,
    min_tokens_to_keep: int = 1,
    top_k: int = 0,
    xtc_probability: float = 0.0,
    xtc_threshold: float = 0.1,
    xtc_special_tokens: Sequence[int] | None = None,
) -> SamplerLaw:
    """Return the `SamplingParams` for mlx-lm's distribution with these arguments.

    As in mlx-lm, a `top_p` that is not between 0 and 1 switches the filter off, and so does a
    `top_k` of 0 or less. Other numbers out of range raise `ValueError`.
    """
    return SamplerLaw(
        temperature=temp,
        top_p=top_p if 0 < top_p < 1 else 1.0,
        min_p=min_p,
        min_tokens_to_keep=min_tokens_to_keep,
        top_k=max(0, top_k),
        xtc_probability=max(0.0, xtc_probability),
        xtc_threshold=xtc_threshold,
        xtc_special_tokens=tuple(xtc_special_tokens or ()),
        filter_order="mlx-lm",
    )


def random_seed() -> int:
    """Return a seed from MLX's own random state, so that `mx.random.seed` determines it."""
    high, low = values(mx.random.randint(0, 1 << 31, (2,)))
    return int(high << 32 | low)


@dataclass(frozen=True)
class LogitBias:
    """Adds a number to the logits of some tokens."""

    bias: Mapping[int, float]

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """Return (1, V) logits; a token outside the vocabulary raises `ValueError`."""
        most = logits.shape[-1] - 1
        wrong = [token for token in self.bias if not 0 <= token <= most]
        if wrong:  # MLX would write outside the array
            raise ValueError(f"logit_bias names token {wrong[0]}; allowed are 0 to {most}")
        ids = mx.array(list(self.bias), mx.int32)
        return logits.at[:, ids].add(mx.array(list(self.bias.values()), logits.dtype))


def make_logits_processors(
    logit_bias: Mapping[int, float] | None = None,
    repetition_penalty: float | None = None,
    repetition_context_size: int = 20,
    presence_penalty: float | None = None,
    presence_context_size: int = 20,
    frequency_penalty: float | None = None,
    frequency_context_size: int = 20,
) -> list[LogitsProcessor]:
    """Return mlx-lm's processors; None and 0 switch a penalty off.

    A context size is the number of last tokens that count; 0 for all.
    """
    sizes = (repetition_context_size, presence_context_size, frequency_context_size)
    for name, size in zip(("repetition", "presence", "frequency"), sizes, strict=True):
        checks.whole(f"{name}_context_size", size)
    made: list[LogitsProcessor] = sample_utils.make_logits_processors(
        None,
        repetition_penalty,
        repetition_context_size,
        presence_penalty,
        presence_context_size,
        frequency_penalty,
        frequency_context_size,
    )
    return [LogitBias(dict(logit_bias)), *made] if logit_bias else made
