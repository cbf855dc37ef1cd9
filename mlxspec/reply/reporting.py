"""The beginning of a reply and its rounds as events."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from mlxspec import __version__
from mlxspec.budget import Spent
from mlxspec.device import backend
from mlxspec.drafts.draft import Draft
from mlxspec.params import GenerationParams
from mlxspec.reply.readout import Readout
from mlxspec.reply.reply import RoundReport
from mlxspec.trace.events import (
    DraftNode,
    DraftProposed,
    DraftVerified,
    Event,
    GenerationStarted,
    PlainDecoded,
)
from mlxspec.verify.processors import name_of


@dataclass(frozen=True)
class RoundFacts:
    """One round as it happened, before it becomes events.

    Attributes:
        number: Number of the target forward, from 1.
        seconds: When it was over, since the reply was asked for.
        context: Tokens in the cache after it.
        draft: What was verified.
        report: What was emitted.
        readout: What the host read of it.
        spent: What it took.
    """

    number: int
    seconds: float
    context: int
    draft: Draft
    report: RoundReport
    readout: Readout
    spent: Spent


def started_event(
    *,
    target: str,
    drafter: str,
    weights: str,
    cache: str,
    context_length: int,
    params: GenerationParams,
) -> GenerationStarted:
    """Return the first event of a reply; see `GenerationStarted` for the arguments."""
    facts = backend.facts()
    return GenerationStarted(
        target=target,
        drafter=drafter,
        device=facts.device,
        blas=facts.blas,
        weights=weights,
        cache=cache,
        lossless=_guarantee(params),
        sampling=_sampling(params),
        seed=params.seed,
        context_length=context_length,
        versions={"mlxspec": __version__, "mlx": facts.mlx, "python": facts.python},
    )


def round_events(facts: RoundFacts, token_bytes: Callable[[int], bytes]) -> Iterator[Event]:
    """Yield the events of a round.

    Args:
        facts: The round.
        token_bytes: Returns what a token stands for.
    """
    r, now, report, spent = facts.number, facts.seconds, facts.report, facts.spent
    tokens, parents = report.outcome.tokens, report.outcome.parents
    if len(tokens) == 1:
        yield PlainDecoded(r, now, report.emit, spent.target_ms, facts.context)
        return
    probs = facts.readout.draft_probs
    nodes = tuple(
        DraftNode(
            index=index,
            parent=parents[index],
            token=tokens[index],
            text=token_bytes(tokens[index]).decode("utf-8", "replace"),
            prob=probs[index - 1] if probs is not None else None,
            source=facts.draft.sources[index - 1],
        )
        for index in range(1, len(tokens))
    )
    started = now - spent.target_ms / 1e3
    yield DraftProposed(r, started, tokens[0], nodes, spent.draft_ms)
    rollback = len(tokens) - len(report.outcome.path)
    yield DraftVerified(
        r, now, report.accepted, report.emit, spent.target_ms, rollback, facts.context
    )


def _sampling(params: GenerationParams) -> dict[str, Any]:
    """Return what is not neutral in how tokens are drawn; functions by their names."""
    functions = {
        "logits_processors": [name_of(function) for function in params.logits_processors],
        "sampler": params.sampler and name_of(params.sampler),
    }
    return params.sampling.describe() | {name: told for name, told in functions.items() if told}


def _guarantee(params: GenerationParams) -> str:
    if params.is_greedy:
        return "greedy"
    return "exact seed" if params.exact_seed else "sampled law"
