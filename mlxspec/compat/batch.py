"""`batch_generate` with mlx-lm's signature and result, on the engine's own batch."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm.generate import BatchResponse, BatchStats  # type: ignore[attr-defined]

from mlxspec.batch import DEFAULT_BATCH_SIZE, BatchReply
from mlxspec.compat.engines import drafter_like, engine_of, refuse
from mlxspec.compat.generation import log_probs, say_nothing
from mlxspec.compat.options import StepOptions, check_stream, known_ends, most_tokens
from mlxspec.compat.prompt_cache import PromptCache, cached_tokens
from mlxspec.compat.sampling import random_seed
from mlxspec.compat.tokenizer import tokens_of, wrap
from mlxspec.device import memory
from mlxspec.device.backend import values
from mlxspec.engine.engine import Engine
from mlxspec.params import GenerationParams


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
        TypeError: An argument is unknown or refused.
        ValueError: The number of caches or of `max_tokens` is not the number of prompts, or a
            number is out of range.
        ContextLengthError: A prompt is longer than the model's context.
    """
    wrapper, size, found = wrap(tokenizer), _take_batch_size(options), _options(options)
    caches = _each("prompt_caches", prompt_caches, prompts)
    befores = [_before(cache, found.max_kv_size) for cache in caches]
    own = [tokens_of(prompt, wrapper) for prompt in prompts]
    texts = [before + tokens for before, tokens in zip(befores, own, strict=True)]
    limits = _each("max_tokens", max_tokens, prompts)
    engine = engine_of(model, wrapper)
    for text, limit in zip(texts, limits, strict=True):  # the longest text determines the cache
        engine = found.engine_for(engine, len(text), limit)
    ends = frozenset(wrapper.eos_token_ids)
    scores: list[list[float]] = [[] for _ in prompts]
    params = _params(engine, ends, found, list(zip(texts, befores, limits, strict=True)))
    if return_logprobs:
        params = [
            replace(one, on_logits=partial(_score, into))
            for one, into in zip(params, scores, strict=True)
        ]
    start, log = time.perf_counter(), print if verbose else say_nothing
    replies = _replies(engine, texts, params, size, log)
    stats = _stats(own, replies, time.perf_counter() - start)
    log(_figures(stats))
    emitted = [_before_end(reply.tokens, ends) for reply in replies]
    after = [
        text + list(reply.tokens[: len(ids) + 1])  # including the stop token
        for text, reply, ids in zip(texts, replies, emitted, strict=True)
    ]
    each_score = [one[: len(ids)] for one, ids in zip(scores, emitted, strict=True)]
    return BatchResponse(
        texts=[wrapper.decode(tokens) for tokens in emitted],
        stats=stats,
        caches=[[PromptCache(t, found.max_kv_size)] for t in after]
        if return_prompt_caches
        else None,
        token_ids=emitted if return_token_ids else None,
        logprobs=each_score if return_logprobs else None,
    )


def _params(
    engine: Engine,
    ends: frozenset[int],
    options: StepOptions,
    rows: Sequence[tuple[list[int], list[int], int]],
) -> list[GenerationParams]:
    """Return the settings of each reply, of which number i has the seed of the call + i.

    `rows` are the text, the part of it that a prompt cache held, and the maximum of tokens.
    """
    seed = random_seed() if options.seed is None else options.seed
    is_foreign = not known_ends(engine, ends)
    made = []
    for index, (text, before, limit) in enumerate(rows):
        most = most_tokens(engine, limit, len(text))
        params = options.params(most, len(before), ignores_eos=is_foreign)
        made.append(replace(params, seed=(seed + index) % 2**64))
    return made


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


def _before_end(tokens: Sequence[int], ends: frozenset[int]) -> list[int]:
    """Return the tokens before the first one that ends a reply."""
    at = (index for index, token in enumerate(tokens) if token in ends)
    return list(tokens[: next(at, len(tokens))])


def _score(into: list[float], tokens: Sequence[int], logits: mx.array) -> None:
    """Append the log-probabilities of tokens."""
    ids = mx.array(list(tokens), mx.int32)[:, None]
    into += values(mx.take_along_axis(log_probs(logits), ids, axis=-1)[:, 0])


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
