"""Events: frozen records of what happens in a generation.

The engine yields events; the app draws them, `stats.py` counts them, `file.py` writes them to a
file. Nothing here imports MLX, so a recorded reply can be shown anywhere.

The events of a reply are: one `TurnStarted` if it belongs to a chat, `GenerationStarted`,
`TokensKept` if it starts with tokens of an earlier reply, some `PrefillProgress`, then for each
target forward either `DraftProposed` and `DraftVerified` or `PlainDecoded`, and last
`GenerationFinished` or `GenerationFailed`. If the drafter fails, `DrafterFailed` follows the
forward of that round. `SpeedupMeasured` follows a reply of a chat. `CostMeasured` stands only in
recordings of earlier versions, which measured forwards between replies.

In all of them `ts` is the number of seconds since the generation started, `r` the number of the
target forward, from 1, and `emit` the emitted tokens in order.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Literal

TRACE_FORMAT = "mlxspec-trace/1"

TokenKind = Literal["accepted", "corrected", "bonus", "plain", "forced", "kept"]
"""Who wrote a token: `accepted`, a draft token that the target accepted; `corrected`, the target's
token where all draft tokens of that position were rejected; `bonus`, the target's token after a
path was accepted to its leaf; `plain`, decoded without a draft; `forced`, a node of the tree whose
token was the only one that the grammar of the reply allowed, or a token that ends a reasoning at
its limit; `kept`, one of the first tokens, which the caller took from an earlier reply or chose."""

Channel = Literal["answer", "reasoning", "mark"]
"""The part of a reply that a token belongs to: `reasoning`, where a reasoning model prepares its
answer; `mark`, the tokens around that part, such as <think>; `answer`, all else."""

FinishReason = Literal["stop", "length", "cancelled", "context", "repeating"]
"""`stop`: a stop token, a stop string or the caller's `stop_when`; `length`: max_tokens is reached;
`cancelled`: the user stopped the reply; `context`: the model's context is full; `repeating`: the
reply repeated itself, and `stop_repeats` was set."""


@dataclass(frozen=True)
class DraftNode:
    """One proposed token of a draft tree."""

    index: int  # the root is 0 and not among the nodes of an event
    parent: int  # index of the parent node, smaller than `index`
    token: int
    text: str  # the token decoded on its own, for display only
    prob: float | None  # the drafter's probability of this token after its parent, if it has one
    source: str  # name of the drafter that proposed it


@dataclass(frozen=True)
class EmittedToken:
    """One token of the reply.

    `text` is the text that this token completes: empty while a character or a possible stop string
    is incomplete; the token that completes it has the whole text, in its own channel. The reply is
    the joined texts of all emitted tokens and `GenerationFinished.text`.
    """

    token: int
    text: str
    kind: TokenKind
    target_prob: float | None = None  # p under the target's distribution at its position
    draft_prob: float | None = None  # the drafter's probability; None if it was not drafted
    channel: Channel = "answer"


@dataclass(frozen=True)
class Alternative:
    """A token that could have been at a position of a reply."""

    token: int
    text: str  # the token decoded on its own, for display only
    model_prob: float  # its probability under the model alone: temperature 1, no filter, no penalty
    # Its probability under the settings of the reply, from which the token was drawn: at
    # temperature 0 it is 1 for the best token. None if the caller's own sampler drew.
    prob: float | None


@dataclass(frozen=True)
class TurnStarted:
    """A chat turn: the message of the user (`role` "user") or the system prompt ("system")."""

    t: ClassVar[str] = "turn"
    role: str
    text: str


@dataclass(frozen=True)
class GenerationStarted:
    """The models, device and settings of a reply."""

    t: ClassVar[str] = "meta"
    target: str
    drafter: str
    device: str = ""
    blas: str = ""  # BLAS library in use on a CPU, or "" on a GPU
    weights: str = ""  # weight type of the target, such as "float32" or "4-bit"
    cache: str = "full"  # or, for example, "rotating 64 (4 kept)"
    lossless: str = "greedy"  # the guarantee that holds; else "sampled"
    sampling: dict[str, Any] = field(default_factory=dict)  # the sampling settings by name
    seed: int = 0
    exact: bool = False  # whether it is the reply of plain decoding to the last bit
    context_length: int = 0  # largest number of tokens of prompt and reply
    versions: dict[str, str] = field(default_factory=dict)  # of mlxspec and of its runtime, by name
    drafts: str = ""  # the drafts that the target verifies, and why no others; "" if unknown
    format: str = TRACE_FORMAT


@dataclass(frozen=True)
class TokensKept:
    """The first tokens of a reply, which the caller gave; no figure of speed counts them."""

    t: ClassVar[str] = "kept"
    ts: float
    emit: tuple[EmittedToken, ...]


@dataclass(frozen=True)
class PrefillProgress:
    """Progress of the prefill. Kept tokens of the reply are read with the prompt, and counted."""

    t: ClassVar[str] = "prefill"
    ts: float
    done: int  # prompt tokens in the cache
    total: int
    reused: int = 0  # prompt tokens that were already in the cache, from an earlier turn


@dataclass(frozen=True)
class DraftProposed:
    """The draft tree of one round, without its root."""

    t: ClassVar[str] = "draft"
    r: int
    ts: float
    root: int  # token at the root: the last emitted token
    nodes: tuple[DraftNode, ...]  # parents before children
    ms: float  # milliseconds spent drafting


@dataclass(frozen=True)
class DraftVerified:
    """The verdict on the draft of the same round."""

    t: ClassVar[str] = "verify"
    r: int
    ts: float
    path: tuple[int, ...]  # indices of the accepted nodes, without the root
    emit: tuple[EmittedToken, ...]  # fewer tokens than the path if the reply ends inside it
    ms: float  # milliseconds spent in the target's forward and the verification
    rollback: int  # number of staged rows that were not committed
    context: int  # tokens in the cache after the commit
    forwards: int = 1  # 0 if a grammar forced the rest of the reply, so that nothing was computed


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
    """The drafter failed; the reply continues without drafts, from the same distribution."""

    t: ClassVar[str] = "nodraft"
    ts: float
    drafter: str
    message: str


@dataclass(frozen=True)
class GenerationFinished:
    """The reply ended.

    `text` is its last text, which belongs to no emitted token: a possible stop string or an
    incomplete character.
    """

    t: ClassVar[str] = "end"
    ts: float
    reason: FinishReason
    text: str = ""
    stats: dict[str, Any] = field(default_factory=dict)  # see `GenerationStats.as_dict`


@dataclass(frozen=True)
class GenerationFailed:
    """The reply ended with an error; the tokens emitted before it are valid."""

    t: ClassVar[str] = "failed"
    ts: float
    message: str
    traceback: str = ""


@dataclass(frozen=True)
class CostMeasured:
    """The cost curve: milliseconds of a target forward by width, measured while nothing else ran.

    Its `ts` counts from the start of the last generation.
    """

    t: ClassVar[str] = "cost"
    ts: float
    context: int  # tokens in the cache during the measurement
    widths: tuple[int, ...]  # numbers of rows in ascending order; the first is 1, a plain forward
    ms: tuple[float, ...]  # median milliseconds of a forward, one for each width

    def __post_init__(self) -> None:
        ascends = all(a < b for a, b in pairwise(self.widths))
        if self.widths[:1] != (1,) or not ascends or len(self.widths) != len(self.ms):
            raise ValueError(
                f"a cost curve needs one time for each width, and widths that ascend from 1; got "
                f"{len(self.ms)} times for the widths {list(self.widths)}"
            )
        if not all(ms > 0 for ms in self.ms):
            raise ValueError(f"milliseconds of a forward are above 0; got {list(self.ms)}")

    @property
    def plain_tps(self) -> float:
        """Tokens per second of plain decoding: one row a forward."""
        return 1e3 / self.ms[0]


@dataclass(frozen=True)
class SpeedupMeasured:
    """Comparison of the latest reply with plain decoding.

    `plain_tps`, `context` and `measured_at` stand in recordings of earlier versions.
    """

    t: ClassVar[str] = "speedup"
    speedup: float | None = None  # of tokens/s; None without drafts, or where it is not sure
    plain_tps: float = 0.0
    context: int = 0
    measured_at: tuple[int, ...] = ()
    copied: int = 0  # first tokens that repeat an earlier reply, which the drafter has seen


Event = (
    TurnStarted
    | GenerationStarted
    | TokensKept
    | PrefillProgress
    | DraftProposed
    | DraftVerified
    | PlainDecoded
    | DrafterFailed
    | GenerationFinished
    | GenerationFailed
    | CostMeasured
    | SpeedupMeasured
)


def text_of(event: Event) -> str:
    """Return the text that an event adds to the reply; most events add none."""
    if isinstance(event, GenerationFinished):
        return event.text
    return "".join(token.text for token in getattr(event, "emit", ()))
