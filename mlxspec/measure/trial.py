"""The trial: one reply, timed and counted. All measurements are made of trials.

Trials that are compared alternate (see `rotated`): other work slows down all of them alike.
"""

import gc
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import mlx.core as mx

from mlxspec.budget import Budget
from mlxspec.device import backend, memory
from mlxspec.drafters.base import Drafter
from mlxspec.engine.engine import Engine
from mlxspec.params import GenerationParams
from mlxspec.trace.events import DrafterFailed, DraftVerified, GenerationFinished, PlainDecoded

PROMPTS = (
    "Explain in a few sentences why the sea has tides.",
    "Write a Python function that counts how often each word occurs in a text.",
    "Make a packing list for a weekend of hiking in the mountains.",
    "Correct the mistakes and give me the whole text back: Yesterday we goes to the market, and "
    "we buyed apples, pears and a loaf of bread, because my sister were coming for dinner.",
    "Give me a table of the planets, with their distance from the sun and their moons.",
    "Write a short letter to a neighbour whose dog barks at night.",
    "Show as JSON what a shop stores about a customer, with two examples.",
    "What speaks for a bicycle in the city, and what against it? Answer as a list.",
)
"""Prompts of different kinds, for short trials."""

T = TypeVar("T")


@dataclass(frozen=True)
class Trial:
    """One reply, as its reader sees it."""

    tokens: tuple[int, ...]  # the stop token included
    prompt_tokens: int
    ttft_s: float  # seconds from the question to the first tokens
    first_tokens: int  # how many came together; drafts can make it more than 1
    seconds: float  # from the first tokens to the last
    forwards: int  # of the target
    rows: int | None = None  # of these forwards; None if the writer does not count them
    peak_memory_gb: float = 0.0  # of MLX, the weights of all arms included
    own_memory_gb: float = 0.0  # the increase over the memory before the reply
    stats: Mapping[str, Any] = field(default_factory=dict)  # of our engine, if it wrote the reply
    fault: str = ""  # the drafter's error

    @property
    def later_tokens(self) -> int:
        """Tokens that came after the first ones, in `seconds`."""
        return len(self.tokens) - self.first_tokens


class Watch:
    """Measures when tokens arrive and how much memory they take, from its construction on."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._held, self._clock = mx.get_active_memory(), clock
        memory.peak_memory_gb(reset=True)
        self._start = self._last = clock()
        self._first: float | None = None
        self._first_tokens = 0

    @staticmethod
    def after_collecting() -> "Watch":
        """Collect garbage first, so that no arm pays for that of another."""
        gc.collect()
        mx.clear_cache()
        return Watch()

    @property
    def has_seen(self) -> bool:
        return self._first is not None

    def saw(self, num_tokens: int) -> None:
        self._last = self._clock()
        if self._first is None:
            self._first, self._first_tokens = self._last, num_tokens

    def trial(
        self,
        tokens: Sequence[int],
        prompt: Sequence[int],
        forwards: int,
        rows: int | None = None,
        **more: Any,
    ) -> Trial:
        first = self._last if self._first is None else self._first
        peak = memory.peak_memory_gb()
        return Trial(
            tokens=tuple(tokens),
            prompt_tokens=len(prompt),
            ttft_s=first - self._start,
            first_tokens=min(self._first_tokens, len(tokens)),
            seconds=self._last - first,
            forwards=forwards,
            rows=rows,
            peak_memory_gb=peak,
            own_memory_gb=max(peak - self._held / backend.GB, 0.0),
            **more,
        )


def run_trial(
    engine: Engine,
    prompt: Sequence[int],
    params: GenerationParams,
    drafter: Drafter | None = None,
    *,
    budget: Budget | None = None,
    should_stop: Callable[[int], bool] = lambda num_tokens: False,
    watch: Watch | None = None,
) -> Trial:
    """Return one reply of an engine, by its own drafter and budget unless others are given.

    `should_stop` is called with the number of tokens so far, once per round.
    """
    watch = watch or Watch()
    tokens: list[int] = []
    fault, stats = "", {}
    events = engine.generate(
        prompt, params, drafter=drafter, budget=budget, should_stop=lambda: should_stop(len(tokens))
    )
    for event in events:
        match event:
            case DraftVerified() | PlainDecoded():
                watch.saw(len(event.emit))
                tokens += [token.token for token in event.emit]
            case DrafterFailed():
                fault = event.message
            case GenerationFinished():
                stats = dict(event.stats)
    forwards = stats["target_forwards"]
    return watch.trial(
        tokens, prompt, forwards, forwards + stats["drafted"], stats=stats, fault=fault
    )


def short_trial(
    engine: Engine,
    text: str,
    drafter: Drafter,
    *,
    max_tokens: int,
    seconds: float = math.inf,
    budget: Budget | None = None,
    clock: Callable[[], float] = time.perf_counter,
    **settings: Any,
) -> Trial:
    """Return a reply of `max_tokens` tokens to a short text, such as one of `PROMPTS`.

    No round starts after `seconds`, the prefill included, but there is always one round. A text
    that is too long for the context is cut at its end.
    """
    prompt, room = prompt_tokens(engine, text), engine.context_length
    if room is not None:
        prompt = prompt[: max(room - max_tokens, 1)]
    params = GenerationParams(max_tokens, seed=1, ignore_eos=True, **settings)
    end = clock() + seconds

    def is_late(num_tokens: int) -> bool:
        return num_tokens > 0 and clock() > end

    return run_trial(engine, prompt, params, drafter, budget=budget, should_stop=is_late)


def prompt_tokens(engine: Engine, *texts: str) -> list[int]:
    """Return the tokens of a conversation: the user's texts and the replies in turn."""
    tokenizer = engine.tokenizer
    if not tokenizer.has_chat_template:
        return tokenizer.encode("\n\n".join(texts))
    roles = ("user", "assistant") * len(texts)
    return tokenizer.apply_chat_template(
        [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    )


def rotated(items: Sequence[T], number: int) -> list[T]:
    """Return items in turn `number` of a rotation: each of them is first equally often."""
    turn = number % len(items) if items else 0
    return [*items[turn:], *items[:turn]]
