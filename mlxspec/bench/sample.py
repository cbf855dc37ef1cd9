"""What is asked of an arm, and what was seen of its reply, defined alike for everybody."""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import mlx.core as mx

from mlxspec.device import backend
from mlxspec.params import DEFAULT_NUM_DRAFT_TOKENS, GenerationParams, SamplingParams


@dataclass(frozen=True)
class Task:
    """How a reply is to be written.

    Attributes:
        max_tokens: Tokens at most, the stop token included.
        temperature: 0 is greedy.
        seed: Seed of the random key.
        num_draft_tokens: Draft nodes per round at most, for drafters of mlxspec.
        ignores_stop: Go on after stop tokens; other projects have no such setting.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    seed: int = 0
    num_draft_tokens: int = DEFAULT_NUM_DRAFT_TOKENS
    ignores_stop: bool = False

    def __post_init__(self) -> None:
        self.params()  # which refuses what is out of range

    def params(self) -> GenerationParams:
        """Return the same for an engine."""
        return GenerationParams(
            max_tokens=self.max_tokens,
            sampling=SamplingParams(temperature=self.temperature),
            seed=self.seed,
            num_draft_tokens=self.num_draft_tokens,
            ignore_eos=self.ignores_stop,
        )


@dataclass(frozen=True)
class Reply:
    """One reply as whoever reads it sees it.

    Attributes:
        tokens: Token ids, the stop token included.
        prompt_tokens: Tokens of the prompt; none of them were in a cache.
        ttft_s: Seconds from the question to the first tokens.
        first_tokens: How many came then: a draft may be among them.
        seconds: Seconds from the first tokens to the last.
        forwards: Target forwards that wrote these tokens.
        rows: Rows that they computed; None where it is not told.
        peak_memory_gb: Most that MLX held meanwhile, the weights of all arms included.
        own_memory_gb: By how much that is more than before the reply.
        stats: Figures of the engine; empty for others.
        fault: What broke down in the drafter, or "".
    """

    tokens: tuple[int, ...]
    prompt_tokens: int
    ttft_s: float
    first_tokens: int
    seconds: float
    forwards: int
    rows: int | None = None
    peak_memory_gb: float = 0.0
    own_memory_gb: float = 0.0
    stats: Mapping[str, Any] = field(default_factory=dict)
    fault: str = ""

    @property
    def is_own(self) -> bool:
        """Whether an engine of mlxspec wrote it."""
        return bool(self.stats)

    @property
    def later_tokens(self) -> int:
        """Tokens that came after the first ones, in `seconds`."""
        return len(self.tokens) - self.first_tokens


class Arm(Protocol):
    """Whoever writes replies: an engine with a drafter, or another project.

    Attributes:
        name: What it is called in the report.
    """

    name: str

    def begin(self) -> None:
        """A conversation begins: forget what was learned in the one before."""

    def write(self, prompt: Sequence[int], task: Task) -> Reply:
        """Reply to a prompt that is in no cache."""


class Watch:
    """Notes when tokens arrive and how much memory that takes, from its making on."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        gc.collect()  # everybody begins without what somebody else left
        mx.clear_cache()
        self._held = mx.get_active_memory()
        backend.peak_memory_gb(reset=True)
        self._clock = clock
        self._start = clock()
        self._first: float | None = None
        self._last = self._start
        self.first_tokens = 0

    @property
    def has_seen(self) -> bool:
        """Whether any token has arrived."""
        return self._first is not None

    def saw(self, num_tokens: int) -> None:
        """Some tokens arrived, all at once."""
        self._last = self._clock()
        if self._first is None:
            self._first, self.first_tokens = self._last, num_tokens

    def reply(
        self,
        tokens: Sequence[int],
        prompt: Sequence[int],
        forwards: int,
        rows: int | None = None,
        **more: Any,
    ) -> Reply:
        """Return what was seen; see `Reply`."""
        first = self._last if self._first is None else self._first
        peak = backend.peak_memory_gb()
        return Reply(
            tokens=tuple(tokens),
            prompt_tokens=len(prompt),
            ttft_s=first - self._start,
            first_tokens=min(self.first_tokens, len(tokens)),
            seconds=self._last - first,
            forwards=forwards,
            rows=rows,
            peak_memory_gb=peak,
            own_memory_gb=max(peak - self._held / backend.GB, 0.0),
            **more,
        )
