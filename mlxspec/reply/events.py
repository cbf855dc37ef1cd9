"""Makes the events of a reply: its start, and its rounds."""

from collections.abc import Callable, Iterator
from typing import Any

from mlxspec import __version__
from mlxspec.decoder.decoder import Decoder
from mlxspec.device import backend
from mlxspec.drafts.round import Round
from mlxspec.params import GenerationParams
from mlxspec.trace.events import (
    DraftNode,
    DraftProposed,
    DraftVerified,
    Event,
    GenerationStarted,
    PlainDecoded,
)
from mlxspec.verify.processors import name_of


def started_event(
    target: Decoder, params: GenerationParams, *, name: str, drafter: str, weights: str
) -> GenerationStarted:
    """Return the first event of a reply; `name` is that of the target."""
    facts = backend.facts()
    return GenerationStarted(
        target=name,
        drafter=drafter,
        device=facts.device,
        blas=facts.blas,
        weights=weights,
        cache=target.cache.describe(),
        lossless=_guarantee(params),
        sampling=_sampling(params),
        seed=params.seed,
        exact=params.exact,
        context_length=target.context_length or 0,
        drafts=target.drafts,
        versions={"mlxspec": __version__, "mlx": facts.mlx, "python": facts.python},
    )


def round_events(round: Round, token_bytes: Callable[[int], bytes]) -> Iterator[Event]:
    """Yield the events of a committed round, given the UTF-8 bytes of a token."""
    number, ended, emitted = round.number, round.ended_s, round.emitted
    tokens, parents, probs = round.tokens, round.parents, round.draft_probs
    if len(tokens) == 1:
        yield PlainDecoded(number, ended, emitted, round.target_ms, round.context)
        return
    nodes = tuple(
        DraftNode(
            index=index,
            parent=parents[index],
            token=tokens[index],
            text=token_bytes(tokens[index]).decode("utf-8", "replace"),
            prob=probs[index - 1] if probs is not None else None,
            source=round.sources[index - 1],
        )
        for index in range(1, len(tokens))
    )
    started = ended - round.target_ms / 1e3
    yield DraftProposed(number, started, tokens[0], nodes, round.draft_ms)
    rollback = (len(tokens) - len(round.path)) * round.forwards
    yield DraftVerified(
        number,
        ended,
        round.emitted_nodes,
        emitted,
        round.target_ms,
        rollback,
        round.context,
        round.forwards,
    )


def _sampling(params: GenerationParams) -> dict[str, Any]:
    """Return the sampling params that are not neutral; functions by their names."""
    functions = {
        "logits_processors": [name_of(function) for function in params.logits_processors],
        "sampler": params.sampler and name_of(params.sampler),
    }
    return params.sampling.describe() | {name: names for name, names in functions.items() if names}


def _guarantee(params: GenerationParams) -> str:
    if params.is_greedy:
        return "greedy"
    return "exact seed" if params.is_coupled else "sampled"
