"""The keyword arguments of mlx-lm's `generate_step`, checked and converted to an engine's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from mlxspec.compat.engines import check_max_kv_size, engine_beside, refuse
from mlxspec.compat.prompt_cache import PromptCache, cached_tokens
from mlxspec.compat.sampling import random_seed
from mlxspec.device.packed import GROUP_SIZES, Quantization
from mlxspec.engine.engine import Engine
from mlxspec.params import (
    DEFAULT_NUM_DRAFT_TOKENS,
    KV_BITS,
    KV_BITS_IN_WORDS,
    GenerationParams,
    LogitsProcessor,
    Sampler,
    SamplingParams,
)

_UNLIMITED = 1 << 30


@dataclass(frozen=True)
class StepOptions:
    """Keyword arguments of `generate_step` and of mlx-lm's speculative decoding.

    `sampler` may be a function of log-probabilities; None is greedy. The reply is appended to
    `prompt_cache`, the text before the prompt. `max_kv_size` and `kv_bits` are the engine's
    own if None. `quantized_kv_start` is 0, or more than the text can reach, which then stays
    without quantisation. The callback gets the number of prefilled and of all prompt tokens.
    """

    sampler: SamplingParams | Sampler | None = None
    logits_processors: Sequence[LogitsProcessor] | None = None
    max_kv_size: int | None = None
    prompt_cache: list[PromptCache] | None = None
    prefill_step_size: int = 2048
    kv_bits: int | None = None
    kv_group_size: int = 64
    quantized_kv_start: int = 5000
    prompt_progress_callback: Callable[[int, int], None] | None = None
    input_embeddings: Any = None  # refused
    num_draft_tokens: int | None = None
    seed: int | None = None  # None draws one from MLX's random state

    @staticmethod
    def of(function: str, options: dict[str, Any], stream: Any = None) -> "StepOptions":
        """Return the checked options of a call; messages name its `function`."""
        why = "the engine computes on streams of its own; leave it out"
        refuse("stream", stream is not None, why)
        names = [field.name for field in fields(StepOptions)]
        unknown = [name for name in options if name not in names]
        if unknown:
            raise TypeError(
                f"{function} has no argument {unknown[0]!r}; it takes {', '.join(names)}"
            )
        found = StepOptions(**options)
        refuse(
            "input_embeddings",
            found.input_embeddings is not None,
            "drafts are tokens, and so is the text that they continue; give the prompt's tokens",
        )
        check_max_kv_size(found.max_kv_size)
        _check_functions(found.sampler, found.logits_processors)
        return found

    def params(self, max_tokens: int, num_cached: int, *, ignores_eos: bool) -> GenerationParams:
        """Return the settings; processors do not see the `num_cached` tokens before this prompt."""
        count = self.num_draft_tokens
        sampling, sampler = SamplingParams(), self.sampler
        if isinstance(sampler, SamplingParams):
            sampling, sampler = sampler, None
        return GenerationParams(
            max_tokens=max_tokens,
            sampling=sampling,
            sampler=sampler,
            logits_processors=_behind(num_cached, self.logits_processors or ()),
            seed=random_seed() if self.seed is None else self.seed,
            num_draft_tokens=DEFAULT_NUM_DRAFT_TOKENS if count is None else count,
            prefill_step_size=self.prefill_step_size,
            ignore_eos=ignores_eos,
        )

    def engine_for(self, engine: Engine, num_prompt: int, max_tokens: int) -> Engine:
        """Return the engine with the cache that a call needs, which may be the given one.

        A different engine has the same model, and the prompt cache keeps it for its next call.
        """
        num_tokens = len(cached_tokens(self.prompt_cache)) + num_prompt
        num_tokens += most_tokens(engine, max_tokens, num_tokens)
        part = self.prompt_cache[0] if self.prompt_cache else PromptCache()
        wanted = self._max_size(engine, part), self._packing(engine, num_tokens)
        for known in (engine, part.engine):
            if known is not None and known.target.model is engine.target.model:
                cache = known.target.cache
                if (cache.max_size, cache.quantization) == wanted:
                    return known
        part.engine = engine_beside(engine, *wanted)
        return part.engine

    def _max_size(self, engine: Engine, part: PromptCache) -> int | None:
        sizes = {size for size in (self.max_kv_size, part.max_kv_size) if size is not None}
        refuse(
            f"max_kv_size={self.max_kv_size}",
            len(sizes) > 1,
            f"the prompt cache was made for {part.max_kv_size} rows; give the size to "
            "make_prompt_cache alone",
        )
        return sizes.pop() if sizes else engine.target.cache.max_size

    def _packing(self, engine: Engine, num_tokens: int) -> Quantization | None:
        own, bits, group = engine.target.cache.quantization, self.kv_bits, self.kv_group_size
        if bits is None:
            return own
        why = f"keys and values can be kept in {KV_BITS_IN_WORDS} bits"
        refuse(f"kv_bits={bits}", bits not in KV_BITS, why)
        start = self.quantized_kv_start
        if start != 0 and num_tokens <= start and own is None:
            return None  # as in mlx-lm, whose rows are quantised only from this length on
        refuse(
            f"quantized_kv_start={start}",
            start != 0,
            "rows are quantised when they are committed, all or none: give 0, or, for none, fewer "
            "max_tokens",
        )
        head_dim = engine.target.model.config.head_dim
        refuse(
            f"kv_group_size={group}",
            group not in GROUP_SIZES or head_dim % group != 0,
            f"groups are of {' or '.join(map(str, GROUP_SIZES))} values, and the head size "
            f"{head_dim} must be a multiple of that",
        )
        return Quantization(bits, group)


def most_tokens(engine: Engine, max_tokens: int, num_tokens: int) -> int:
    """Return the most tokens of a reply after `num_tokens`: those of the call, cut to the context.

    `max_tokens` may be -1 for no limit.
    """
    if type(max_tokens) is not int or max_tokens < -1 or max_tokens == 0:
        raise ValueError(
            f"max_tokens must be a whole number, 1 or more, or -1 for no limit; got {max_tokens!r}"
        )
    length = engine.context_length
    # + 1: the last token is emitted and never goes into the cache
    room = _UNLIMITED if length is None else max(1, length + 1 - num_tokens)
    return room if max_tokens == -1 else min(max_tokens, room)


def known_ends(engine: Engine, ends: frozenset[int]) -> frozenset[int]:
    """Return the engine's own stop tokens, or none if some of them are not in `ends`."""
    own = frozenset((*engine.target.eos_token_ids, *engine.tokenizer.eos_token_ids))
    return own if own <= ends else frozenset()


def _behind(num_cached: int, processors: Sequence[LogitsProcessor]) -> tuple[LogitsProcessor, ...]:
    """Return processors that get the text without its first `num_cached` tokens."""
    if not num_cached:
        return tuple(processors)
    return tuple(
        lambda tokens, logits, act=processor: act(tokens[num_cached:], logits)
        for processor in processors
    )


def _check_functions(sampler: Any, processors: Any) -> None:
    if not (sampler is None or isinstance(sampler, SamplingParams) or callable(sampler)):
        raise TypeError(
            f"the sampler is a {type(sampler).__name__}; give SamplingParams, what make_sampler "
            "returns, or a function of log-probabilities"
        )
    if isinstance(processors, SamplingParams):
        raise TypeError(
            "logits_processors is a SamplingParams: pass it as the sampler, which applies all of it"
        )
    if not (isinstance(processors or (), Sequence) and all(map(callable, processors or ()))):
        raise TypeError(
            f"logits_processors is a {type(processors).__name__}; give a list of functions of the "
            "tokens and the logits"
        )
