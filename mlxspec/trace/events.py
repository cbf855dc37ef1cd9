"""Frozen records of what happened in a generation.

The engine yields these records; the app draws them, `stats` counts them, `trace` writes them to
a file. Nothing here imports MLX, so a recorded reply can be shown anywhere.

A reply is: one `TurnStarted` when it came from a chat, `GenerationStarted`, some
`PrefillProgress`, then per target forward either `DraftProposed` + `DraftVerified` or
`PlainDecoded`, and last `GenerationFinished` or `GenerationFailed`. Where the drafter breaks
down, `DrafterFailed` follows the forward at hand. What a forward costs is measured between
replies: `CostMeasured`.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Literal

TRACE_FORMAT = "mlxspec-trace/1"

TokenKind = Literal["accepted", "corrected", "bonus", "plain"]
"""Who wrote a token: `accepted`, drafted and kept; `corrected`, the target's own where every
draft for that position was rejected; `bonus`, the target's own after a whole path was accepted;
`plain`, decoded without a draft."""

FinishReason = Literal["stop", "length", "cancelled", "context"]
"""`stop`: stop token or stop string, or a caller's `stop_when`; `length`: max_tokens reached;
`cancelled`: the user stopped it; `context`: the model's context is full."""


@dataclass(frozen=True)
class DraftNode:
    """One proposed token of a draft tree.

    Attributes:
        index: Place in the tree; the root is 0 and not among the nodes of an event.
        parent: Index of the parent node, smaller than `index`.
        token: Token id.
        text: The token decoded on its own, for display only.
        prob: The drafter's estimate of this token after its parent, or None if it gives none.
        source: Name of the drafter that proposed it.
    """

    index: int
    parent: int
    token: int
    text: str
    prob: float | None
    source: str


@dataclass(frozen=True)
class EmittedToken:
    """One token of the reply.

    Attributes:
        token: Token id.
        text: Text released by this token: empty while a character or a possible stop string is
            incomplete, and then all of it on the token that completes it. The texts of all
            emitted tokens, and `GenerationFinished.text`, joined are the reply.
        kind: Who wrote it.
        target_prob: Probability under the target's law at its position.
        draft_prob: The drafter's probability, or None for a token that was not drafted.
    """

    token: int
    text: str
    kind: TokenKind
    target_prob: float | None = None
    draft_prob: float | None = None


@dataclass(frozen=True)
class TurnStarted:
    """A chat turn: what the user said (`role` "user") or the system prompt ("system")."""

    t: ClassVar[str] = "turn"
    role: str
    text: str


@dataclass(frozen=True)
class GenerationStarted:
    """What runs: models, device and settings.

    Attributes:
        target: Name of the target model.
        drafter: Name of the drafter.
        device: Device in words.
        blas: BLAS library in use on a CPU, or "" on a GPU.
        weights: Weight type of the target, such as "float32" or "4-bit".
        cache: Cache in words, such as "full" or "rotating 64 (4 kept)".
        lossless: Which guarantee holds, such as "greedy" or "sampled law".
        sampling: The sampling settings by name.
        seed: Seed of the random key.
        context_length: Tokens the model can hold.
        versions: Versions of mlxspec and of what it runs on.
        format: Trace format.
    """

    t: ClassVar[str] = "meta"
    target: str
    drafter: str
    device: str = ""
    blas: str = ""
    weights: str = ""
    cache: str = "full"
    lossless: str = "greedy"
    sampling: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    context_length: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    format: str = TRACE_FORMAT


@dataclass(frozen=True)
class PrefillProgress:
    """Prompt tokens read so far.

    Attributes:
        ts: Seconds since the generation started.
        done: Prompt tokens in the cache.
        total: Prompt tokens in all.
        reused: Of these, how many were still in the cache from the turn before.
    """

    t: ClassVar[str] = "prefill"
    ts: float
    done: int
    total: int
    reused: int = 0


@dataclass(frozen=True)
class DraftProposed:
    """The draft tree of one round, root left out.

    Attributes:
        r: Number of the target forward, from 1.
        ts: Seconds since the generation started.
        root: Token at the root: the last emitted token.
        nodes: The drafted nodes, parents before children.
        ms: Milliseconds spent drafting.
    """

    t: ClassVar[str] = "draft"
    r: int
    ts: float
    root: int
    nodes: tuple[DraftNode, ...]
    ms: float


@dataclass(frozen=True)
class DraftVerified:
    """What the target made of the draft of the same round.

    Attributes:
        r: Number of the target forward, from 1.
        ts: Seconds since the generation started.
        path: Indices of the accepted nodes, root left out.
        emit: Emitted tokens in order; may be shorter than the path when the reply ends inside it.
        ms: Milliseconds spent in the target's forward and the verification.
        rollback: Staged rows that were forgotten.
        context: Tokens in the cache after the commit.
    """

    t: ClassVar[str] = "verify"
    r: int
    ts: float
    path: tuple[int, ...]
    emit: tuple[EmittedToken, ...]
    ms: float
    rollback: int
    context: int


@dataclass(frozen=True)
class PlainDecoded:
    """A target forward without a draft: exactly one token."""

    t: ClassVar[str] = "plain"
    r: int
    ts: float
    emit: tuple[EmittedToken, ...]
    ms: float
    context: int


@dataclass(frozen=True)
class DrafterFailed:
    """The drafter broke down; the reply goes on without drafts, its law unchanged.

    Attributes:
        ts: Seconds since the generation started.
        drafter: Name of the drafter.
        message: What happened to it.
    """

    t: ClassVar[str] = "nodraft"
    ts: float
    drafter: str
    message: str


@dataclass(frozen=True)
class GenerationFinished:
    """The reply ended.

    Attributes:
        ts: Seconds since the generation started.
        reason: Why it ended.
        text: Text that was still held back, to append to the reply.
        stats: Figures of this reply; see `mlxspec.trace.stats.GenerationStats`.
    """

    t: ClassVar[str] = "end"
    ts: float
    reason: FinishReason
    text: str = ""
    stats: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class GenerationFailed:
    """The reply broke off; what was emitted before is valid."""

    t: ClassVar[str] = "failed"
    ts: float
    message: str
    traceback: str = ""


@dataclass(frozen=True)
class CostMeasured:
    """What a target forward cost by its number of rows, measured while nothing else ran.

    Attributes:
        ts: Seconds since the generation before it started.
        context: Tokens in the cache meanwhile.
        widths: Numbers of rows, ascending, the first one 1: a plain forward.
        ms: Median milliseconds of a forward of each.
    """

    t: ClassVar[str] = "cost"
    ts: float
    context: int
    widths: tuple[int, ...]
    ms: tuple[float, ...]

    def __post_init__(self) -> None:
        ascends = all(a < b for a, b in pairwise(self.widths))
        if self.widths[:1] != (1,) or not ascends or len(self.widths) != len(self.ms):
            raise ValueError(
                f"a cost needs milliseconds for widths that ascend from 1; got {len(self.ms)} "
                f"for the widths {list(self.widths)}"
            )
        if not all(ms > 0 for ms in self.ms):
            raise ValueError(f"a forward takes more than 0 milliseconds; got {list(self.ms)}")

    @property
    def plain_tps(self) -> float:
        """Tokens per second of forwards of one row, one after the other."""
        return 1e3 / self.ms[0]

    @property
    def ratios(self) -> tuple[float, ...]:
        """Cost of each width in forwards of one row."""
        return tuple(ms / self.ms[0] for ms in self.ms)


Event = (
    TurnStarted
    | GenerationStarted
    | PrefillProgress
    | DraftProposed
    | DraftVerified
    | PlainDecoded
    | DrafterFailed
    | GenerationFinished
    | GenerationFailed
    | CostMeasured
)


def text_of(event: Event) -> str:
    """Return what an event adds to the text of the reply; most add nothing."""
    match event:
        case DraftVerified() | PlainDecoded():
            return "".join(token.text for token in event.emit)
        case GenerationFinished():
            return event.text
    return ""
