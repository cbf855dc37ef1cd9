"""`batch_generate` by mlx-lm's signature, over the engine's own batch."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import mlx.core as mx

from mlxspec.batch import BatchReply
from mlxspec.batch.settings import DEFAULT_BATCH_SIZE
from mlxspec.compat.generation import log_probs
from mlxspec.compat.options import StepOptions, check_stream, known_ends, most_tokens
from mlxspec.compat.prompt_cache import PromptCache, cached_tokens
from mlxspec.compat.refusals import check_engine, refuse
from mlxspec.compat.samplers import random_seed
from mlxspec.compat.tokenizer import tokens_of, wrap
from mlxspec.device import backend
from mlxspec.device.backend import values
from mlxspec.drafters.base import Drafter, fresh_drafter
from mlxspec.drafting.registry import HOST_DRAFTERS
from mlxspec.engine.engine import Engine
from mlxspec.params import GenerationParams


@dataclass(frozen=True)
class BatchStats:
    """What a batch took.

    Attributes:
        prompt_tokens: Tokens of all prompts.
        prompt_time: Seconds spent reading prompts.
        generation_tokens: Emitted tokens, stop tokens included.
        wall_time: Seconds in all.
        peak_memory: GB.
    """

    prompt_tokens: int
    prompt_time: float
    generation_tokens: int
    wall_time: float
    peak_memory: float

    @property
    def prompt_tps(self) -> float:
        """Prompt tokens/s."""
        return self.prompt_tokens / self.prompt_time if self.prompt_time else 0.0

    @property
    def generation_time(self) -> float:
        """Seconds not spent reading prompts."""
        return max(0.0, self.wall_time - self.prompt_time)

    @property
    def generation_tps(self) -> float:
        """Emitted tokens/s, prompts left out."""
        return self.generation_tokens / self.generation_time if self.generation_time else 0.0


@dataclass(frozen=True)
class BatchResponse:
    """The replies to a batch of prompts, in their order.

    Attributes:
        texts: What each says.
        stats: What they took.
        caches: A prompt cache after each, where they were asked for.
        token_ids: Their tokens without stop tokens, where they were asked for.
        logprobs: The log-probability of each token after the logits processors, likewise.
    """

    texts: list[str]
    stats: BatchStats
    caches: list[list[PromptCache]] | None
    token_ids: list[list[int]] | None = None
    logprobs: list[list[float]] | None = None


def batch_generate(
    model: Engine,
    tokenizer: Any,
    prompts: Sequence[Any],
    prompt_caches: Sequence[Sequence[PromptCache]] | None = None,
    max_tokens: int | Sequence[int] = 128,
    verbose: bool = False,
    return_prompt_caches: bool = False,
    return_token_ids: bool = False,
    return_logprobs: bool = False,
    **options: Any,
) -> BatchResponse:
    """Reply to many prompts together.

    A drafter that cannot serve many sequences is replaced by the one called "pool" meanwhile.

    Args:
        model: What `load` returned first; its cache has to be one that grows.
        tokenizer: What it returned second.
        prompts: Token ids, or texts.
        prompt_caches: What stands before each prompt; they are left as they are.
        max_tokens: Tokens per reply at most, one number or one per prompt; -1 for no limit.
        verbose: Print progress and figures.
        return_prompt_caches: Return `caches`.
        return_token_ids: Return `token_ids`.
        return_logprobs: Return `logprobs`.
        options: `sampler`, `logits_processors`, `prefill_step_size`, `max_kv_size` and `seed` as in
            `StepOptions`, for all prompts, and `completion_batch_size`: how many sequences at most
            are decoded together.

    Raises:
        UnsupportedOperationError: An argument is refused, or the engine's cache rotates.
        ValueError: There are not as many numbers or caches as prompts, or one is out of range.
        ContextLengthError: A prompt does not fit the model.
    """
    engine, speller = check_engine(model), wrap(tokenizer)
    size = _take_batch_size(options)
    work = _Work(engine, frozenset(speller.eos_token_ids), _options(engine, options))
    befores = [cached_tokens(cache) for cache in _each("prompt_caches", prompt_caches, prompts)]
    own = [tokens_of(prompt, speller) for prompt in prompts]
    texts = [before + tokens for before, tokens in zip(befores, own, strict=True)]
    scores = [_Scores() for _ in prompts]
    params = [
        work.params(index, text, len(befores[index]), most)
        for index, (text, most) in enumerate(
            zip(texts, _each("max_tokens", max_tokens, prompts), strict=True)
        )
    ]
    if return_logprobs:
        params = [replace(one, on_logits=s.add) for one, s in zip(params, scores, strict=True)]
    start, say = time.perf_counter(), print if verbose else _say_nothing
    replies = []
    drafter = _drafter_for_many(engine)
    for reply in engine.generate_batch(texts, params, drafter=drafter, batch_size=size):
        replies.append(reply)
        done = f"{len(replies)}/{len(prompts)}"
        say(f"[batch_generate] Finished processing {done} ...", end="\r")
    stats = _stats(own, replies, time.perf_counter() - start)
    say(_figures(stats))
    said = [work.without_end(reply.tokens) for reply in replies]
    after = [texts[i] + list(reply.tokens[: len(said[i]) + 1]) for i, reply in enumerate(replies)]
    return BatchResponse(
        texts=[speller.decode(tokens) for tokens in said],
        stats=stats,
        caches=[[PromptCache(tokens)] for tokens in after] if return_prompt_caches else None,
        token_ids=said if return_token_ids else None,
        logprobs=[s.first(len(tokens)) for s, tokens in zip(scores, said, strict=True)]
        if return_logprobs
        else None,
    )


@dataclass(frozen=True)
class _Work:
    """What all replies of a batch have in common.

    Attributes:
        engine: The engine.
        ends: Tokens that end a reply.
        options: The keyword arguments.
        seed: Seed of the first reply; those that follow count on.
    """

    engine: Engine
    ends: frozenset[int]
    options: StepOptions
    seed: int = field(default_factory=random_seed)

    def params(
        self, index: int, text: Sequence[int], num_cached: int, max_tokens: int
    ) -> GenerationParams:
        most = most_tokens(self.engine, max_tokens, len(text))
        is_foreign = not known_ends(self.engine, self.ends)
        params = self.options.params(most, num_cached, ignores_eos=is_foreign)
        first = self.seed if self.options.seed is None else self.options.seed
        return replace(params, seed=(first + index) % 2**64)

    def without_end(self, tokens: Sequence[int]) -> list[int]:
        """Return what was said before the first token that ends a reply."""
        at = (place for place, token in enumerate(tokens) if token in self.ends)
        return list(tokens[: next(at, len(tokens))])


class _Scores:
    """The log-probabilities of what a reply says."""

    def __init__(self) -> None:
        self._found: list[float] = []

    def add(self, tokens: Sequence[int], logits: mx.array) -> None:
        ids = mx.array(list(tokens), mx.int32)[:, None]
        scores = mx.take_along_axis(log_probs(logits), ids, axis=-1)
        self._found += values(scores[:, 0])

    def first(self, count: int) -> list[float]:
        return self._found[:count]


def _drafter_for_many(engine: Engine) -> Drafter:
    """Return the engine's drafter, or "pool" where that serves one sequence alone."""
    try:
        return fresh_drafter(engine.drafter)
    except ValueError:
        return HOST_DRAFTERS["pool"]()


def _take_batch_size(options: dict[str, Any]) -> int:
    refuse(
        "prefill_batch_size",
        "prefill_batch_size" in options,
        "prompts are read one after the other; leave it out",
    )
    check_stream(options.pop("stream", None))
    return int(options.pop("completion_batch_size", DEFAULT_BATCH_SIZE))


def _options(engine: Engine, options: dict[str, Any]) -> StepOptions:
    for name, instead in (("prompt_cache", "prompt_caches"), ("prompt_progress_callback", "")):
        use = f"give {instead}" if instead else "leave it out"
        refuse(name, name in options, f"a batch has many prompts; {use}")
    return StepOptions.of(engine, "batch_generate", options)


def _each(name: str, values: Any, prompts: Sequence[Any]) -> list[Any]:
    """Return a value per prompt: those given, or one for all."""
    if values is None or type(values) is int:
        return [values] * len(prompts)
    if len(values) != len(prompts):
        raise ValueError(f"got {len(values)} {name} for {len(prompts)} prompts: give as many")
    return list(values)


def _stats(
    prompts: Sequence[Sequence[int]], replies: Sequence[BatchReply], seconds: float
) -> BatchStats:
    return BatchStats(
        prompt_tokens=sum(map(len, prompts)),
        prompt_time=sum(reply.stats["prefill_s"] for reply in replies),
        generation_tokens=sum(len(reply.tokens) for reply in replies),
        wall_time=seconds,
        peak_memory=backend.peak_memory_gb(),
    )


def _figures(stats: BatchStats) -> str:
    return (
        f"\n[batch_generate] Prompt: {stats.prompt_tokens} tokens, "
        f"{stats.prompt_tps:.3f} tokens-per-sec\n"
        f"[batch_generate] Generation: {stats.generation_tokens} tokens, "
        f"{stats.generation_tps:.3f} tokens-per-sec\n"
        f"[batch_generate] Peak memory: {stats.peak_memory:.3f} GB"
    )


def _say_nothing(*_: Any, **__: Any) -> None:
    pass
