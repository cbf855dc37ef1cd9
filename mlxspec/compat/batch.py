"""`batch_generate` with mlx-lm's signature, on the engine's own batch."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import mlx.core as mx

from mlxspec.batch import BatchReply
from mlxspec.batch.settings import DEFAULT_BATCH_SIZE
from mlxspec.compat.engines import drafter_like, engine_of
from mlxspec.compat.generation import log_probs
from mlxspec.compat.options import StepOptions, check_stream, known_ends, most_tokens
from mlxspec.compat.prompt_cache import PromptCache, cached_tokens
from mlxspec.compat.refusals import refuse
from mlxspec.compat.samplers import random_seed
from mlxspec.compat.tokenizer import tokens_of, wrap
from mlxspec.device import memory
from mlxspec.device.backend import values
from mlxspec.engine.engine import Engine
from mlxspec.params import GenerationParams


@dataclass(frozen=True)
class BatchStats:
    """Times and token counts of a batch.

    Attributes:
        prompt_tokens: Tokens of all prompts.
        prompt_time: Seconds of prefill.
        generation_tokens: Emitted tokens, stop tokens included.
        wall_time: Seconds from start to end.
        peak_memory: Peak memory in GB.
    """

    prompt_tokens: int
    prompt_time: float
    generation_tokens: int
    wall_time: float
    peak_memory: float

    @property
    def prompt_tps(self) -> float:
        """Tokens/s of the prefill."""
        return self.prompt_tokens / self.prompt_time if self.prompt_time else 0.0

    @property
    def generation_time(self) -> float:
        """Seconds without the prefill."""
        return max(0.0, self.wall_time - self.prompt_time)

    @property
    def generation_tps(self) -> float:
        """Emitted tokens/s, without the prefill."""
        return self.generation_tokens / self.generation_time if self.generation_time else 0.0


@dataclass(frozen=True)
class BatchResponse:
    """The replies to a batch of prompts, in the order of the prompts.

    Attributes:
        texts: Text of each reply.
        caches: A prompt cache after each reply, if requested.
        token_ids: Tokens of each reply without stop tokens, if requested.
        logprobs: Log-probability of each token after the logits processors, if requested.
    """

    texts: list[str]
    stats: BatchStats
    caches: list[list[PromptCache]] | None
    token_ids: list[list[int]] | None = None
    logprobs: list[list[float]] | None = None


def batch_generate(
    model: Any,
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

    A drafter that cannot be copied is replaced by "pool" for this call.

    Args:
        model: The first value of `load`, here or in mlx-lm.
        tokenizer: The second value of `load`.
        prompts: Token ids, or texts.
        prompt_caches: The text before each prompt; the caches are not changed.
        max_tokens: Maximum tokens of a reply, one number or one per prompt; -1 for no limit.
        verbose: Print progress and figures.
        return_prompt_caches: Return `caches`.
        return_token_ids: Return `token_ids`.
        return_logprobs: Return `logprobs`.
        options: As in `StepOptions`, for all prompts; and `completion_batch_size`, the maximum
            number of sequences that are decoded together.

    Raises:
        UnsupportedOperationError: An argument is refused.
        ValueError: The number of caches or of `max_tokens` is not the number of prompts, or a
            number is out of range.
        ContextLengthError: A prompt is longer than the model's context.
    """
    wrapper, size, found = wrap(tokenizer), _take_batch_size(options), _options(options)
    caches = _each("prompt_caches", prompt_caches, prompts)
    befores = [_before(cache, found.max_kv_size) for cache in caches]
    own = [tokens_of(prompt, wrapper) for prompt in prompts]
    texts = [before + tokens for before, tokens in zip(befores, own, strict=True)]
    scores = [_Scores() for _ in prompts]
    limits = _each("max_tokens", max_tokens, prompts)
    engine = engine_of(model, wrapper)
    for text, limit in zip(texts, limits, strict=True):  # the longest text determines the cache
        engine = found.engine_for(engine, len(text), limit)
    work = _Work(engine, frozenset(wrapper.eos_token_ids), found)
    params = work.params_of_all(texts, [len(before) for before in befores], limits)
    if return_logprobs:
        params = [replace(one, on_logits=s.add) for one, s in zip(params, scores, strict=True)]
    start, log = time.perf_counter(), print if verbose else _say_nothing
    replies = _replies(engine, texts, params, size, log)
    stats = _stats(own, replies, time.perf_counter() - start)
    log(_figures(stats))
    emitted = [work.without_end(reply.tokens) for reply in replies]
    return BatchResponse(
        texts=[wrapper.decode(tokens) for tokens in emitted],
        stats=stats,
        caches=work.caches_after(texts, replies, emitted) if return_prompt_caches else None,
        token_ids=emitted if return_token_ids else None,
        logprobs=_first_of_each(scores, emitted) if return_logprobs else None,
    )


def _replies(
    engine: Engine,
    texts: Sequence[list[int]],
    params: Sequence[GenerationParams],
    batch_size: int,
    log: Callable[..., None],
) -> list[BatchReply]:
    """Return the replies in the order of the texts; each finished one is logged."""
    replies: list[BatchReply] = []
    drafter = drafter_like(engine.drafter, engine.target)
    for reply in engine.generate_batch(texts, params, drafter=drafter, batch_size=batch_size):
        reply.raise_error()
        replies.append(reply)
        done = f"{len(replies)}/{len(texts)}"
        log(f"[batch_generate] Finished processing {done} ...", end="\r")
    return replies


@dataclass(frozen=True)
class _Work:
    """The common settings of all replies of a batch.

    `ends` are the tokens that end a reply. Reply i uses `seed` + i.
    """

    engine: Engine
    ends: frozenset[int]
    options: StepOptions
    seed: int = field(default_factory=random_seed)

    def params_of_all(
        self, texts: Sequence[Sequence[int]], num_cached: Sequence[int], limits: Sequence[int]
    ) -> list[GenerationParams]:
        rows = zip(texts, num_cached, limits, strict=True)
        return [self._params(index, *row) for index, row in enumerate(rows)]

    def _params(
        self, index: int, text: Sequence[int], num_cached: int, max_tokens: int
    ) -> GenerationParams:
        most = most_tokens(self.engine, max_tokens, len(text))
        is_foreign = not known_ends(self.engine, self.ends)
        params = self.options.params(most, num_cached, ignores_eos=is_foreign)
        first = self.seed if self.options.seed is None else self.options.seed
        return replace(params, seed=(first + index) % 2**64)

    def caches_after(
        self,
        texts: Sequence[list[int]],
        replies: Sequence[BatchReply],
        emitted: Sequence[Sequence[int]],
    ) -> list[list[PromptCache]]:
        """Return a cache of each text with its reply, including the stop token."""
        rows = zip(texts, replies, emitted, strict=True)
        after = [text + list(reply.tokens[: len(ids) + 1]) for text, reply, ids in rows]
        return [[PromptCache(tokens, self.options.max_kv_size)] for tokens in after]

    def without_end(self, tokens: Sequence[int]) -> list[int]:
        """Return the tokens before the first one that ends a reply."""
        at = (index for index, token in enumerate(tokens) if token in self.ends)
        return list(tokens[: next(at, len(tokens))])


class _Scores:
    """The log-probabilities of the tokens of one reply."""

    def __init__(self) -> None:
        self._found: list[float] = []

    def add(self, tokens: Sequence[int], logits: mx.array) -> None:
        ids = mx.array(list(tokens), mx.int32)[:, None]
        scores = mx.take_along_axis(log_probs(logits), ids, axis=-1)
        self._found += values(scores[:, 0])

    def first(self, count: int) -> list[float]:
        return self._found[:count]


def _first_of_each(
    scores: Sequence[_Scores], emitted: Sequence[Sequence[int]]
) -> list[list[float]]:
    return [one.first(len(tokens)) for one, tokens in zip(scores, emitted, strict=True)]


def _before(cache: Sequence[PromptCache] | None, max_kv_size: int | None) -> list[int]:
    """Return the text before a prompt."""
    tokens = cached_tokens(cache)
    refuse(
        "a prompt cache with max_kv_size",
        any(part.max_kv_size not in (None, max_kv_size) for part in cache or ()),
        "all texts of a batch have caches of one size; give that size to batch_generate",
    )
    return tokens


def _take_batch_size(options: dict[str, Any]) -> int:
    refuse(
        "prefill_batch_size",
        "prefill_batch_size" in options,
        "prompts are prefilled one after the other; leave it out",
    )
    check_stream(options.pop("stream", None))
    return int(options.pop("completion_batch_size", DEFAULT_BATCH_SIZE))


def _options(options: dict[str, Any]) -> StepOptions:
    for name, instead in (("prompt_cache", "prompt_caches"), ("prompt_progress_callback", "")):
        use = f"give {instead}" if instead else "leave it out"
        refuse(name, name in options, f"a batch has many prompts; {use}")
    return StepOptions.of("batch_generate", options)


def _each(name: str, values: Any, prompts: Sequence[Any]) -> list[Any]:
    """Return one value per prompt: the given ones, or the same value for all."""
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
        peak_memory=memory.peak_memory_gb(),
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
