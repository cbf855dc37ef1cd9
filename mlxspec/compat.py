"""The names and shapes of mlx-lm's generation, so that a script changes one import.

    from mlxspec.compat import load, stream_generate   # was: from mlx_lm import ...

    model, tokenizer = load("mlx-community/Qwen2.5-0.5B-Instruct-4bit")
    for response in stream_generate(model, tokenizer, prompt, max_tokens=200):
        print(response.text, end="", flush=True)

The first value of `load` is an engine, drafter and all; `make_sampler` and
`make_logits_processors` describe a law instead of returning functions, because a function of
logits cannot be verified along a tree.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

from mlxspec import api, backend
from mlxspec.engine import Engine
from mlxspec.events import DraftVerified, GenerationFinished, PlainDecoded
from mlxspec.law import Law
from mlxspec.loading.tokenizer import Tokenizer
from mlxspec.params import GenerationParams
from mlxspec.stats import GenerationStats


@dataclass(frozen=True)
class GenerationResponse:
    """One emitted token, in mlx-lm's shape.

    Attributes:
        text: Text that this token released.
        token: Token id.
        from_draft: Whether a drafter proposed it.
        prompt_tokens: Tokens of the prompt.
        prompt_tps: Prompt tokens/s.
        generation_tokens: Tokens emitted so far.
        generation_tps: Emitted tokens/s so far.
        peak_memory: GB.
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


def load(path_or_hf_repo: str | PathLike[str], **options: Any) -> tuple[Engine, Tokenizer]:
    """Load an engine and its tokenizer; `options` are those of `mlxspec.load`."""
    engine = api.load(path_or_hf_repo, **options)
    return engine, engine.tokenizer


def make_sampler(temp: float = 0.0, top_p: float = 0.0, min_p: float = 0.0, top_k: int = 0) -> Law:
    """Return the law that mlx-lm's arguments name; a top_p of 0 keeps all tokens, as there."""
    return Law(temperature=temp, top_p=top_p or 1.0, min_p=min_p, top_k=top_k)


def make_logits_processors(
    logit_bias: dict[int, float] | None = None, repetition_penalty: float | None = None
) -> Law:
    """Return a law with bias and penalty; unlike mlx-lm the penalty looks at the whole text."""
    return Law(logit_bias=logit_bias or {}, repetition_penalty=repetition_penalty or 1.0)


def stream_generate(
    model: Engine,
    tokenizer: Tokenizer,
    prompt: str | Sequence[int],
    *,
    max_tokens: int = 256,
    sampler: Law | None = None,
    logits_processors: Law | None = None,
    seed: int = 0,
) -> Iterator[GenerationResponse]:
    """Yield one response per emitted token.

    Args:
        model: What `load` returned first.
        tokenizer: What it returned second; the engine's own is used.
        prompt: Text or token ids.
        max_tokens: Tokens to emit at most.
        sampler: From `make_sampler`; None is greedy.
        logits_processors: From `make_logits_processors`.
        seed: Seed of the random key.

    Raises:
        ValueError: The prompt is empty.
        ContextLengthError: It does not fit the model.
    """
    law = sampler or Law()
    if logits_processors is not None:
        law = replace(
            law,
            logit_bias=logits_processors.logit_bias,
            repetition_penalty=logits_processors.repetition_penalty,
        )
    params = GenerationParams(max_tokens=max_tokens, law=law, seed=seed)
    held: GenerationResponse | None = None  # the last token waits for the reason of the end
    stats = GenerationStats()
    emitted = 0
    for event in model.generate(prompt, params):
        stats.add(event)
        if isinstance(event, DraftVerified | PlainDecoded):
            for token in event.emit:
                if held:
                    yield held
                emitted += 1
                held = GenerationResponse(
                    text=token.text,
                    token=token.token,
                    from_draft=token.kind == "accepted",
                    prompt_tokens=stats.prompt_tokens,
                    prompt_tps=stats.prompt_tps,
                    generation_tokens=emitted,
                    generation_tps=stats.generation_tps,
                    peak_memory=backend.peak_memory_gb(),
                )
        elif isinstance(event, GenerationFinished) and held:
            reason = "length" if event.reason == "context" else event.reason
            yield replace(held, text=held.text + event.text, finish_reason=reason)


def generate(
    model: Engine, tokenizer: Tokenizer, prompt: str | Sequence[int], **options: Any
) -> str:
    """Return the whole reply; `options` are those of `stream_generate`."""
    return "".join(
        response.text for response in stream_generate(model, tokenizer, prompt, **options)
    )
