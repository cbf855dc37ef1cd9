"""`generate`, `stream_generate` and `generate_step` with mlx-lm's signatures."""

import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, cast

import mlx.core as mx
from mlx_lm.generate import GenerationResponse as TheirResponse

from mlxspec.budget import FixedBudget
from mlxspec.compat.engines import draft_model_drafter, engine_of
from mlxspec.compat.options import StepOptions, known_ends, most_tokens
from mlxspec.compat.prompt_cache import cached_tokens
from mlxspec.compat.tokenizer import tokens_of, wrap
from mlxspec.device import memory
from mlxspec.drafters.base import Drafter
from mlxspec.engine.engine import Engine
from mlxspec.trace.events import Event, PrefillProgress

_LOOKAHEAD = 2  # the default of mlx-lm's speculative decoding


class GenerationResponse(TheirResponse):
    """mlx-lm's own response, made with logits: log-probabilities are costly, and few read them."""

    @property
    def logprobs(self) -> mx.array:
        """(V,) float32 log-probabilities after the logits processors, computed on access."""
        return log_probs(self._logits)

    @logprobs.setter
    def logprobs(self, logits: mx.array) -> None:
        self._logits = logits


@dataclass(frozen=True)
class Step:
    """One emitted token, before it becomes text."""

    token: int
    from_draft: bool
    logits: mx.array  # (V,) float32, after the logits processors
    left: int  # how many tokens may follow
    prompt_s: float  # seconds of the prefill


def _steps(
    engine: Engine,
    prompt: Sequence[int],
    max_tokens: int,
    options: StepOptions,
    drafter: Drafter | None = None,
    ends: frozenset[int] = frozenset(),
) -> Iterator[Step]:
    """Yield the tokens of a reply, including the one of `ends` that ends it.

    As in mlx-lm, the prompt cache holds each token once it is yielded.
    """
    tell = options.prompt_progress_callback or say_nothing
    tell(0, len(prompt))
    parts, text = options.prompt_cache or [], [*cached_tokens(options.prompt_cache), *prompt]
    num_cached, known = len(text) - len(prompt), known_ends(engine, ends)
    left, prompt_s = most_tokens(engine, max_tokens, len(text)), 0.0
    for part in parts:
        part.tokens = list(text)
    rows = deque[mx.array]()

    def collect(tokens: Sequence[int], logits: mx.array) -> None:
        own = list(logits)
        mx.eval(own)  # in the thread that runs the engine
        rows.extend(own)

    params = replace(options.params(left, num_cached, ignores_eos=not known), on_logits=collect)
    budget = FixedBudget() if drafter else None
    replies = engine.generate(text, params, drafter=drafter, budget=budget)
    with closing(cast(Generator[Event, None, None], replies)) as events:
        for event in events:
            if isinstance(event, PrefillProgress):
                tell(max(0, event.done - num_cached), len(prompt))
                prompt_s = event.ts
            for token in getattr(event, "emit", ()):
                left -= 1
                for part in parts:
                    part.tokens.append(token.token)
                is_drafted = token.kind == "accepted"
                yield Step(token.token, is_drafted, rows.popleft(), left, prompt_s)
                if token.token in ends - known:
                    return


def generate_step(
    prompt: Any, model: Any, stream: Any = None, *, max_tokens: int = 256, **options: Any
) -> Iterator[tuple[int, mx.array]]:
    """Yield tokens and their (V,) log-probabilities; stop tokens do not end the reply.

    Arguments and errors are those of `stream_generate`; a prompt is token ids.
    """
    found, tokens = StepOptions.of("generate_step", options, stream), tokens_of(prompt)
    engine = found.engine_for(engine_of(model), len(tokens), max_tokens)
    steps = _steps(engine, tokens, max_tokens, found)
    return ((step.token, log_probs(step.logits)) for step in steps)


def stream_generate(
    model: Any,
    tokenizer: Any,
    prompt: Any,
    max_tokens: int = 256,
    draft_model: Any = None,
    stream: Any = None,
    **options: Any,
) -> Iterator[GenerationResponse]:
    """Yield one response per emitted token.

    Args:
        model: The first value of `load`, here or in mlx-lm.
        tokenizer: The second value of `load`: it encodes the prompt, decodes the reply and states
            the tokens that end it.
        prompt: Text or token ids.
        max_tokens: Maximum number of tokens; -1 for no limit.
        draft_model: Another first value of `load`, which drafts instead of the drafter of `model`.
        stream: Refused.
        options: See `StepOptions`.

    Raises:
        TypeError: An argument is unknown or refused.
        ValueError: The prompt is empty, or a number is out of range.
        ContextLengthError: The prompt is longer than the model's context.
        VocabularyMismatchError: `draft_model` has another tokenizer.
    """
    found, wrapper = StepOptions.of("stream_generate", options, stream), wrap(tokenizer)
    tokens, ends = tokens_of(prompt, wrapper), frozenset(wrapper.eos_token_ids)
    engine = found.engine_for(engine_of(model, wrapper), len(tokens), max_tokens)
    drafter = None
    if draft_model is not None:
        lookahead = found.num_draft_tokens or _LOOKAHEAD
        found = replace(found, num_draft_tokens=lookahead)
        small = engine_of(draft_model, wrapper, "draft_model")
        drafter = draft_model_drafter(engine, small, lookahead)
    steps = _steps(engine, tokens, max_tokens, found, drafter, ends)
    return _responses(steps, len(tokens), ends, wrapper.detokenizer)


def generate(model: Any, tokenizer: Any, prompt: Any, verbose: bool = False, **options: Any) -> str:
    """Return the whole reply of `stream_generate`, and print it with its figures if `verbose`."""
    log = print if verbose else say_nothing
    log("=" * 10)
    text = ""
    for response in stream_generate(model, tokenizer, prompt, **options):
        log(response.text, end="", flush=True)
        text += response.text
    log("\n" + "=" * 10)
    if not text:
        log("No text generated for this prompt")
        return text
    log(figures(response))
    return text


def figures(found: Any, mark: str = "") -> str:
    """Return the lines that mlx-lm prints below a reply or a batch."""
    return (
        f"{mark}Prompt: {found.prompt_tokens} tokens, {found.prompt_tps:.3f} tokens-per-sec\n"
        f"{mark}Generation: {found.generation_tokens} tokens, "
        f"{found.generation_tps:.3f} tokens-per-sec\n"
        f"{mark}Peak memory: {found.peak_memory:.3f} GB"
    )


def log_probs(logits: mx.array) -> mx.array:
    """Return the log-probabilities of (..., V) logits."""
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def say_nothing(*_: Any, **__: Any) -> None:
    """Do nothing, where nobody listens."""


def _responses(
    steps: Iterator[Step], num_prompt: int, ends: frozenset[int], stream: Any
) -> Iterator[GenerationResponse]:
    start = time.perf_counter()
    for count, step in enumerate(steps, 1):
        is_end = step.token in ends
        if not is_end:
            stream.add_token(step.token)
        if is_end or not step.left:
            stream.finalize()
        yield GenerationResponse(
            text=stream.last_segment,
            token=step.token,
            logprobs=step.logits,
            from_draft=step.from_draft,
            prompt_tokens=num_prompt,
            prompt_tps=num_prompt / step.prompt_s,
            generation_tokens=count,
            generation_tps=count / (time.perf_counter() - start - step.prompt_s),
            peak_memory=memory.peak_memory_gb(),
            finish_reason="stop" if is_end else None if step.left else "length",
        )
