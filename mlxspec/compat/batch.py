"""`batch_generate` with mlx-lm's signature and result, on the engine's own batch."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

import mlx.core as mx
from mlx_lm.generate import BatchResponse, BatchStats  # type: ignore[attr-defined]

from mlxspec.batch.open import DEFAULT_BATCH_SIZE
from mlxspec.compat.engines import drafter_like, engine_of, refuse
from mlxspec.compat.generation import figures, log_probs, say_nothing
from mlxspec.compat.options import StepOptions, known_ends, most_tokens
from mlxspec.compat.prompt_cache import PromptCache, cached_tokens
from mlxspec.compat.sampling import random_seed
from mlxspec.compat.tokenizer import tokens_of, wrap
from mlxspec.device import memory
from mlxspec.device.backend import values
from mlxspec.engine.engine import Engine
from mlxspec.params import GenerationParams
from mlxspec.reply.reply import BatchReply

_REFUSED = {
    "prefill_batch_size": "prompts are prefilled one after the other; leave it out",
    "prompt_cache": "a batch has many prompts; give prompt_caches",
    "prompt_progress_callback": "a batch has many prompts; leave it out",
}


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
    """Reply to many prompts together, as `stream_generate` does to one.

    `prompts` are token ids or texts, and `prompt_caches` the text before each, which stays as it
    is. `max_tokens` is one number, or one per prompt; `completion_batch_size`, one of the options,
    is the most sequences that are decoded together. A drafter that cannot be copied is replaced by
    "pool" for this call. Another number of caches or of `max_tokens` raises `ValueError`.
    """
    for name, reason in _REFUSED.items():
        refuse(name, name in options, reason)
    size = int(options.pop("completion_batch_size", DEFAULT_BATCH_SIZE))
    found = StepOptions.of("batch_generate", options, options.pop("stream", None))
    wrapper, log = wrap(tokenizer), print if verbose else say_nothing
    caches = _each("prompt_caches", prompt_caches, prompts)
    limits = _each("max_tokens", max_tokens, prompts)
    rows = [
        _Row(_before(cache, found.max_kv_size), tokens_of(prompt, wrapper), limit)
        for prompt, cache, limit in zip(prompts, caches, limits, strict=True)
    ]
    engine, ends = engine_of(model, wrapper), frozenset(wrapper.eos_token_ids)
    for row in rows:  # the longest text determines the cache
        engine = found.engine_for(engine, len(row.text), row.limit)
    params = _params(engine, ends, found, rows, is_scored=return_logprobs)
    replies, stats = _replies(engine, rows, params, size, log)
    said = [list(takewhile(lambda token: token not in ends, reply.tokens)) for reply in replies]
    kept = [  # including the stop token
        [PromptCache([*row.text, *reply.tokens[: len(tokens) + 1]], found.max_kv_size)]
        for row, reply, tokens in zip(rows, replies, said, strict=True)
    ]
    scores = [row.scores[: len(tokens)] for row, tokens in zip(rows, said, strict=True)]
    return BatchResponse(
        texts=[wrapper.decode(tokens) for tokens in said],
        stats=stats,
        caches=kept if return_prompt_caches else None,
        token_ids=said if return_token_ids else None,
        logprobs=scores if return_logprobs else None,
    )


@dataclass(frozen=True)
class _Row:
    """One prompt of a batch: the tokens before it, its own, and the maximum of its reply."""

    before: list[int]
    own: list[int]
    limit: int
    scores: list[float] = field(default_factory=list)  # log-probabilities of the reply's tokens

    @property
    def text(self) -> list[int]:
        return self.before + self.own

    def score(self, tokens: Sequence[int], logits: mx.array) -> None:
        ids = mx.array(list(tokens), mx.int32)[:, None]
        self.scores.extend(values(mx.take_along_axis(log_probs(logits), ids, axis=-1)[:, 0]))


def _params(
    engine: Engine,
    ends: frozenset[int],
    options: StepOptions,
    rows: Sequence[_Row],
    *,
    is_scored: bool,
) -> list[GenerationParams]:
    """Return the settings of each reply, of which number i has the seed of the call + i."""
    seed = random_seed() if options.seed is None else options.seed
    ignores_eos, made = not known_ends(engine, ends), []
    for index, row in enumerate(rows):
        own = replace(options, seed=(seed + index) % 2**64)
        most = most_tokens(engine, row.limit, len(row.text))
        params = own.params(most, len(row.before), ignores_eos=ignores_eos)
        made.append(replace(params, on_logits=row.score if is_scored else None))
    return made


def _replies(
    engine: Engine,
    rows: Sequence[_Row],
    params: Sequence[GenerationParams],
    batch_size: int,
    log: Callable[..., None],
) -> tuple[list[BatchReply], BatchStats]:
    """Return the replies in the order of the rows, and their figures; log both."""
    start, replies = time.perf_counter(), list[BatchReply]()
    texts, drafter = [row.text for row in rows], drafter_like(engine.drafter, engine.target)
    for reply in engine.generate_batch(texts, params, drafter=drafter, batch_size=batch_size):
        reply.raise_error()
        replies.append(reply)
        log(f"[batch_generate] Finished processing {len(replies)}/{len(texts)} ...", end="\r")
    stats = BatchStats(
        prompt_tokens=sum(len(row.own) for row in rows),
        prompt_time=sum(reply.stats["prefill_s"] for reply in replies),
        generation_tokens=sum(len(reply.tokens) for reply in replies),
        wall_time=time.perf_counter() - start,
        peak_memory=memory.peak_memory_gb(),
    )
    log("\n" + figures(stats, "[batch_generate] "))
    return replies, stats


def _before(cache: Sequence[PromptCache] | None, max_kv_size: int | None) -> list[int]:
    """Return the text before a prompt."""
    tokens = cached_tokens(cache)
    refuse(
        "a prompt cache with max_kv_size",
        any(part.max_kv_size not in (None, max_kv_size) for part in cache or ()),
        "all texts of a batch have caches of one size; give that size to batch_generate",
    )
    return tokens


def _each(name: str, values: Any, prompts: Sequence[Any]) -> list[Any]:
    if values is None or type(values) is int:
        return [values] * len(prompts)
    if len(values) != len(prompts):
        raise ValueError(f"got {len(values)} {name} for {len(prompts)} prompts: give as many")
    return list(values)
