"""`generate`, `stream_generate` and `generate_step` with mlx-lm's signatures."""

import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, cast

import mlx.core as mx

from mlxspec.budget import FixedBudget
from mlxspec.compat.engines import engine_of
from mlxspec.compat.options import (
    DEFAULT_LOOKAHEAD,
    StepOptions,
    check_stream,
    draft_model_drafter,
    known_ends,
    most_tokens,
)
from mlxspec.compat.sampling import random_seed
from mlxspec.compat.tokenizer import tokens_of, wrap
from mlxspec.device import memory
from mlxspec.engine.engine import Engine
from mlxspec.trace.events import Event, PrefillProgress


@dataclass(frozen=True)
class GenerationResponse:
    """One emitted token.

    Attributes:
        text: Text that this token completes; "" inside a character.
        from_draft: Whether a drafter proposed it.
        prompt_tokens: Tokens of the prompt.
        prompt_tps: Prompt tokens/s.
        generation_tokens: Tokens emitted so far.
        generation_tps: Emitted tokens/s, without the prefill.
        peak_memory: Peak memory in GB.
        finish_reason: "stop" or "length" with the last token, else None.
    """

    text: str
    token: int
    from_draft: bool
    prompt_tokens: int
    prompt_tps: float
    generation_tokens: int
    generation_tps: float
    peak_memory: float
    finish_reason: str | None = None
    _logits: mx.array | None = field(default=None, repr=False, compare=False)

    @property
    def logprobs(self) -> mx.array:
        """(V,) float32 log-probabilities after the logits processors, computed on access."""
        assert self._logits is not None
        return log_probs(self._logits)


@dataclass(frozen=True)
class Step:
    """One emitted token, before it becomes text.

    `logits`, (V,) float32, are those from which it was sampled. `prompt_s` is the time of the
    prefill in seconds.
    """

    token: int
    from_draft: bool
    logits: mx.array
    prompt_s: float


@dataclass(frozen=True)
class Call:
    """One call of generation, with its checked arguments.

    Attributes:
        max_tokens: Maximum number of tokens; -1 for no limit.
        draft_model: Engine whose model drafts; None for the engine's own drafter.
        ends: Tokens that end the reply.
    """

    engine: Engine
    prompt: Sequence[int]
    max_tokens: int
    options: StepOptions
    draft_model: Engine | None = None
    ends: frozenset[int] = frozenset()

    def steps(self) -> Iterator[Step]:
        """Yield the tokens of the reply, including the one that ends it.

        As in mlx-lm, the prompt cache holds each token once it is yielded. If other code changes
        the cache in the meantime, the next token still follows the previous text, and the reply
        then continues after the new content of the cache.
        """
        self.tell(0)
        parts, text = self.options.prompt_cache or [], [*self.options.cached, *self.prompt]
        left, prompt_s = most_tokens(self.engine, self.max_tokens, len(text)), 0.0
        for part in parts:
            part.tokens = list(text)
        goes_on = True
        while goes_on:
            goes_on = False
            with closing(self._reply(text, left, prompt_s)) as steps:
                for step in steps:
                    left, prompt_s = left - 1, step.prompt_s
                    goes_on = any(part.tokens != text for part in parts)
                    if goes_on:
                        text = list(parts[0].tokens)
                    for tokens in (text, *(part.tokens for part in parts)):
                        tokens.append(step.token)
                    yield step
                    if goes_on:
                        break
            goes_on = goes_on and left > 0 and text[-1] not in self.ends

    def _reply(
        self, text: Sequence[int], left: int, prompt_s: float
    ) -> Generator[Step, None, None]:
        """Yield tokens after a text; `prompt_s` is 0 at the start of the call."""
        rows = deque[mx.array]()

        def collect(tokens: Sequence[int], logits: mx.array) -> None:
            own = list(logits)
            mx.eval(own)  # in the thread that runs the engine
            rows.extend(own)

        num_cached, known = max(0, len(text) - len(self.prompt)), known_ends(self.engine, self.ends)
        params = self.options.params(left, num_cached, ignores_eos=not known)
        if is_later := prompt_s > 0:
            params = replace(params, seed=random_seed())
        drafter, budget = None, None
        if self.draft_model is not None:
            drafter = draft_model_drafter(
                self.engine, self.draft_model, self.options.num_draft_tokens
            )
            budget = FixedBudget()
        params = replace(params, on_logits=collect)
        replies = self.engine.generate(list(text), params, drafter=drafter, budget=budget)
        with closing(cast(Generator[Event, None, None], replies)) as events:
            for event in events:
                if isinstance(event, PrefillProgress) and not is_later:
                    self.tell(event.done - num_cached)
                    prompt_s = event.ts
                for token in getattr(event, "emit", ()):
                    is_drafted = token.kind == "accepted"
                    yield Step(token.token, is_drafted, rows.popleft(), prompt_s)
                    if token.token in self.ends - known:
                        return

    def tell(self, done: int) -> None:
        """Call the callback with the number of prefilled prompt tokens."""
        if self.options.prompt_progress_callback:
            self.options.prompt_progress_callback(max(0, done), len(self.prompt))


def generate_step(
    prompt: Any, model: Any, stream: Any = None, *, max_tokens: int = 256, **options: Any
) -> Iterator[tuple[int, mx.array]]:
    """Yield tokens and their (V,) log-probabilities; stop tokens do not end the reply.

    Args:
        prompt: Token ids.
        model: The first value of `load`, here or in mlx-lm.
        stream: Refused.
        max_tokens: Maximum number of tokens; -1 for no limit.
        options: See `StepOptions`.

    Raises:
        TypeError: An argument is unknown or refused.
        ValueError: The prompt is empty, or a number is out of range.
    """
    check_stream(stream)
    found, tokens = StepOptions.of("generate_step", options), tokens_of(prompt)
    engine = found.engine_for(engine_of(model), len(tokens), max_tokens)
    call = Call(engine, tokens, max_tokens, found)
    return ((step.token, log_probs(step.logits)) for step in call.steps())


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
        draft_model: Another first value of `load`; its model drafts instead of the drafter of
            `model`.
        stream: Refused.
        options: See `StepOptions`.

    Raises:
        TypeError: An argument is unknown or refused.
        ValueError: The prompt is empty, or a number is out of range.
        ContextLengthError: The prompt is longer than the model's context.
    """
    check_stream(stream)
    found, wrapper = StepOptions.of("stream_generate", options), wrap(tokenizer)
    if draft_model is not None:
        draft_model = engine_of(draft_model, wrapper, "draft_model")
        found = replace(found, num_draft_tokens=found.num_draft_tokens or DEFAULT_LOOKAHEAD)
    tokens = tokens_of(prompt, wrapper)
    ends = frozenset(wrapper.eos_token_ids)
    engine = found.engine_for(engine_of(model, wrapper), len(tokens), max_tokens)
    return _responses(Call(engine, tokens, max_tokens, found, draft_model, ends), wrapper)


def generate(model: Any, tokenizer: Any, prompt: Any, verbose: bool = False, **options: Any) -> str:
    """Return the whole reply.

    Args:
        model: The first value of `load`, here or in mlx-lm.
        tokenizer: The second value of `load`.
        prompt: Text or token ids.
        verbose: Print the text while it is generated, then figures.
        options: The options of `stream_generate`.

    Raises:
        TypeError: An argument is unknown or refused.
        ValueError: The prompt is empty, or a number is out of range.
        ContextLengthError: The prompt is longer than the model's context.
    """
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
    log(
        f"Prompt: {response.prompt_tokens} tokens, {response.prompt_tps:.3f} tokens-per-sec\n"
        f"Generation: {response.generation_tokens} tokens, "
        f"{response.generation_tps:.3f} tokens-per-sec\n"
        f"Peak memory: {response.peak_memory:.3f} GB"
    )
    return text


def log_probs(logits: mx.array) -> mx.array:
    """Return the log-probabilities of (..., V) logits."""
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def _responses(call: Call, speller: Any) -> Iterator[GenerationResponse]:
    stream, start = speller.detokenizer, time.perf_counter()
    most = most_tokens(call.engine, call.max_tokens, len(call.options.cached) + len(call.prompt))
    for count, step in enumerate(call.steps(), 1):
        is_end = step.token in call.ends
        if not is_end:
            stream.add_token(step.token)
        if is_end or count == most:
            stream.finalize()
        yield GenerationResponse(
            text=stream.last_segment,
            token=step.token,
            from_draft=step.from_draft,
            prompt_tokens=len(call.prompt),
            prompt_tps=len(call.prompt) / step.prompt_s,
            generation_tokens=count,
            generation_tps=count / (time.perf_counter() - start - step.prompt_s),
            peak_memory=memory.peak_memory_gb(),
            finish_reason="stop" if is_end else "length" if count == most else None,
            _logits=step.logits,
        )


def say_nothing(*_: Any, **__: Any) -> None:
    """Print nothing, where `verbose` is False."""
