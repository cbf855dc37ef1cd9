"""The task of an arm and the measurements of its reply, with the same definition for all arms."""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import mlx.core as mx

from mlxspec.device import backend, memory
from mlxspec.params import DEFAULT_NUM_DRAFT_TOKENS, GenerationParams, Grammar, SamplingParams


@dataclass(frozen=True)
class Task:
    """The settings of a reply; other projects use only `max_tokens`, `temperature` and `seed`.

    Attributes:
        max_tokens: Maximum number of tokens, the stop token included.
        num_draft_tokens: Maximum number of draft nodes per round.
        ignores_stop: Whether to continue after stop tokens.
        prediction: The text that the reply is expected to repeat.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    num_draft_tokens: int = DEFAULT_NUM_DRAFT_TOKENS
    ignores_stop: bool = False
    prediction: str | None = None
    grammar: Grammar | None = None

    def __post_init__(self) -> None:
        self.params()  # raises where a value is out of range

    def params(self) -> GenerationParams:
        """Return the settings as parameters of an engine."""
        return GenerationParams(
            max_tokens=self.max_tokens,
            sampling=SamplingParams(
                temperature=self.temperature, top_p=self.top_p, min_p=self.min_p
            ),
            seed=self.seed,
            num_draft_tokens=self.num_draft_tokens,
            ignore_eos=self.ignores_stop,
            prediction=self.prediction,
            grammar=self.grammar,
        )


@dataclass(frozen=True)
class Reply:
    """One reply, as its reader sees it.

    Attributes:
        tokens: Token ids, the stop token included.
        prompt_tokens: Number of prompt tokens; none of them were in a cache.
        ttft_s: Seconds from the question to the first tokens.
        first_tokens: Number of tokens that arrived first, together; drafts can make it more than 1.
        seconds: Seconds from the first tokens to the last.
        forwards: Number of target forwards that wrote these tokens.
        rows: Number of rows that they computed; None if the arm does not count them.
        peak_memory_gb: Peak memory of MLX in GB, the weights of all arms included.
        own_memory_gb: Increase of that over the memory before the reply, in GB.
        stats: Figures of the engine; empty for other projects.
        fault: Error of the drafter, or "".
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
        """Whether an engine of mlxspec wrote the reply."""
        return bool(self.stats)

    @property
    def later_tokens(self) -> int:
        """Tokens that came after the first ones, in `seconds`."""
        return len(self.tokens) - self.first_tokens


class Arm(Protocol):
    """A writer of replies: an engine with a drafter, or another project."""

    name: str

    def begin(self) -> None:
        """Start a conversation: forget all that the drafter learned in earlier ones."""

    def write(self, prompt: Sequence[int], task: Task) -> Reply:
        """Reply to a prompt that is in no cache."""


class Watch:
    """Measures when tokens arrive and how much memory they take, from its construction on."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        gc.collect()  # no arm pays for the garbage of another
        mx.clear_cache()
        self._held = mx.get_active_memory()
        memory.peak_memory_gb(reset=True)
        self._clock = clock
        self._start = clock()
        self._first: float | None = None
        self._last = self._start
        self.first_tokens = 0

    @property
    def has_seen(self) -> bool:
        return self._first is not None

    def saw(self, num_tokens: int) -> None:
        """Record that some tokens arrived together."""
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
        first = self._last if self._first is None else self._first
        peak = memory.peak_memory_gb()
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
