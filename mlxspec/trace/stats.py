"""Statistics of a reply from its events: acceptance, accepted lengths, tokens per second.

Definitions differ between projects; ours stand in `docs/glossary.md`, with their reasons. Nodes of
an accepted path count even if the reply ended inside it. Speeds do not include the prefill.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from itertools import zip_longest
from typing import Any

from mlxspec.trace.events import (
    DraftProposed,
    DraftVerified,
    EmittedToken,
    Event,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    PrefillProgress,
    TokensKept,
)

PREDICTION = "prediction"
"""Source of draft nodes that a caller's prediction of the reply proposes."""

GRAMMAR = "grammar"
"""Source of draft nodes that are proposed because the grammar allows only a few tokens there."""

FORCED = "forced"
"""Source of nodes whose token is the only one that the grammar of the reply, or its limit of
reasoning, allows there. They are not guesses, so no figure of drafts counts them."""


@dataclass
class GenerationStats:
    """Figures of one reply, counted from its events."""

    prompt_tokens: int = 0  # tokens of the prompt, including reused ones and kept ones of the reply
    reused_tokens: int = 0  # prompt tokens whose rows were already in the cache
    kept_tokens: int = 0  # first tokens, given by the caller; not among those generated
    generated_tokens: int = 0
    reasoning_tokens: int = 0  # emitted tokens between the marks of reasoning
    rounds: int = 0
    plain_forwards: int = 0
    drafted: int = 0
    accepted: int = 0
    accepted_at_depth: list[int] = field(default_factory=list)  # rounds, by depth from 1 on
    drafted_at_depth: list[int] = field(default_factory=list)
    length_counts: list[int] = field(default_factory=list)  # rounds, by accepted length from 0 on
    kinds: dict[str, int] = field(default_factory=dict)  # emitted tokens by kind
    sources: dict[str, int] = field(default_factory=dict)  # accepted nodes by drafter
    accepted_prediction_tokens: int = 0  # tokens of a predicted text that were drafted and accepted
    rejected_prediction_tokens: int = 0  # tokens of it that were drafted and not accepted
    draft_s: float = 0.0
    target_s: float = 0.0  # seconds spent in target forwards and verification
    prefill_s: float = 0.0  # seconds from the start to the end of the prompt
    ttft_s: float = 0.0
    total_s: float = 0.0  # seconds from the start to the last event
    _draft: DraftProposed | None = field(default=None, repr=False)

    def add(self, event: Event) -> None:
        """Count one event; events must come in the order in which the engine yields them."""
        match event:
            case GenerationStarted():
                self.__init__()  # type: ignore[misc]  # a trace may hold several replies
            case TokensKept():
                self.kept_tokens = len(event.emit)
            case PrefillProgress():
                self.prompt_tokens, self.reused_tokens = event.total, event.reused
                self.prefill_s = event.ts
            case DraftProposed():
                self._draft = event
                self.draft_s += event.ms / 1e3
            case DraftVerified():
                self._add_round(event)
            case PlainDecoded():
                self.plain_forwards += 1
                self._add_tokens(event.emit, event.ts, event.ms)
            case GenerationFinished() | GenerationFailed():
                self.total_s = event.ts

    def _add_round(self, event: DraftVerified) -> None:
        self._add_tokens(event.emit, event.ts, event.ms)
        draft, self._draft = self._draft, None
        # A trace may start inside a round: then only the emitted tokens can be counted.
        drafted = draft.nodes if draft and draft.r == event.r else ()
        depths = {0: 0}
        for node in drafted:
            depths[node.index] = depths.get(node.parent, 0) + (node.source != FORCED)
        nodes = {node.index: node for node in drafted if node.source != FORCED}
        path = [index for index in event.path if index in nodes]
        if drafted and not nodes:  # all of it was forced
            self.plain_forwards += event.forwards
            return
        self.rounds += 1
        self.drafted += len(nodes)
        self.accepted += len(path)
        for depth in range(1, max(depths.values()) + 1):
            _count(self.drafted_at_depth, depth - 1)
        for index in path:
            _count(self.accepted_at_depth, depths[index] - 1)
            source = nodes[index].source
            self.sources[source] = self.sources.get(source, 0) + 1
        num_predicted = sum(node.source == PREDICTION for node in nodes.values())
        num_right = sum(nodes[index].source == PREDICTION for index in path)
        self.accepted_prediction_tokens += num_right
        self.rejected_prediction_tokens += num_predicted - num_right
        _count(self.length_counts, len(path))

    def _add_tokens(self, emit: tuple[EmittedToken, ...], ts: float, ms: float) -> None:
        if emit and not self.generated_tokens:
            self.ttft_s = ts
        self.generated_tokens += len(emit)
        self.target_s += ms / 1e3
        self.total_s = ts
        for token in emit:
            self.kinds[token.kind] = self.kinds.get(token.kind, 0) + 1
            self.reasoning_tokens += token.channel == "reasoning"

    @property
    def target_forwards(self) -> int:
        """Forwards of the target after the prefill."""
        return self.rounds + self.plain_forwards

    @property
    def mean_rows(self) -> float:
        """Mean number of rows of a target forward, the root included; 1 in plain decoding."""
        return 1.0 + (self.drafted / self.target_forwards if self.target_forwards else 0.0)

    @property
    def acceptance_rate(self) -> float:
        """Accepted nodes / drafted depths; 0 without a draft."""
        depths = sum(self.drafted_at_depth)
        return self.accepted / depths if depths else 0.0

    @property
    def mean_acceptance_length(self) -> float:
        """1 + accepted / rounds, the bonus token included; 1 without a draft."""
        return mean_acceptance_length(self.accepted, self.rounds)

    @property
    def acceptance_by_depth(self) -> list[float]:
        """Share of all rounds that accepted a node at depth 1, 2, ..."""
        return [count / self.rounds for count in self.accepted_at_depth]

    @property
    def acceptance_given_reached(self) -> list[float]:
        """Share of the rounds with a node accepted at depth d - 1 that accepted one at depth d."""
        reached = [self.rounds, *self.accepted_at_depth]
        return [deep / base for deep, base in zip(self.accepted_at_depth, reached, strict=False)]

    @property
    def prompt_tps(self) -> float:
        """Prompt tokens computed per second; reused tokens are not counted."""
        computed = self.prompt_tokens - self.reused_tokens
        return computed / self.prefill_s if self.prefill_s else 0.0

    @property
    def generation_tps(self) -> float:
        """Emitted tokens per second after the prefill."""
        seconds = self.total_s - self.prefill_s
        return self.generated_tokens / seconds if seconds > 0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return all figures, derived ones included, as JSON values."""
        figures = {name: value for name, value in asdict(self).items() if name[0] != "_"}
        return figures | {name: getattr(self, name) for name in _DERIVED}


def mean_acceptance_length(accepted: float, rounds: float) -> float:
    """Return 1 + accepted / rounds, the bonus token included; 1 without a round."""
    return 1.0 + (accepted / rounds if rounds else 0.0)


def total(replies: Iterable[GenerationStats]) -> GenerationStats:
    """Return the figures of several replies as if they were one; times are summed."""
    whole = GenerationStats()
    for stats in replies:
        for item in fields(whole):
            if not item.name.startswith("_"):
                both = getattr(whole, item.name), getattr(stats, item.name)
                setattr(whole, item.name, _sum(*both))
    return whole


def _sum(left: Any, right: Any) -> Any:
    if isinstance(left, list):
        return [a + b for a, b in zip_longest(left, right, fillvalue=0)]
    if isinstance(left, dict):
        return dict(Counter(left) + Counter(right))
    return left + right


_DERIVED = [name for name, value in vars(GenerationStats).items() if isinstance(value, property)]


def _count(counts: list[int], index: int) -> None:
    counts.extend([0] * (index + 1 - len(counts)))
    counts[index] += 1
