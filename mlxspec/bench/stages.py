"""Profiles: how much time each stage of a round takes, and each part of a forward.

A round is timed without a change: its stages build the graph, and it waits for the device once.
The lazy work of a draft model or a head is part of that wait.

In a profile of a forward, each part is evaluated before the next one starts. That adds a wait per
part, so compare parts with each other and not with a round.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from mlxspec.budget.cost import verify_forward
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.base import Drafter
from mlxspec.engine.engine import Engine
from mlxspec.errors import UnsupportedOperationError
from mlxspec.measure.tables import cell, table
from mlxspec.measure.trial import run_trial
from mlxspec.models import Model
from mlxspec.params import GenerationParams
from mlxspec.reply import pending as pending_room
from mlxspec.reply import verification as verification_room
from mlxspec.reply.continuation import Continuation
from mlxspec.reply.pending import PendingRound
from mlxspec.text.stream import TextStream

REST = "the rest"
_BEGIN = "begin"  # once per reply
Place = tuple[Any, str, str]
"""An object or class, the name of a callable in it, and the stage of its calls."""


class Stopwatch:
    """Adds up the seconds by stage; the time of an inner stage does not count in the outer one."""

    def __init__(self, *, evaluates: bool = False) -> None:
        """Start the stopwatch; with `evaluates` it waits for arrays before and after each call."""
        self.seconds: dict[str, float] = {}
        self._evaluates = evaluates
        self._stages = [REST]
        self._since = time.perf_counter()

    def timed(self, call: Callable[..., Any], stage: str) -> Callable[..., Any]:
        """Return a callable that does the same and counts its time for a stage."""

        @wraps(call)
        def timed(*args: Any, **more: Any) -> Any:
            self._settle(args)
            self.stop()
            self._stages.append(stage)
            try:
                result = call(*args, **more)
                self._settle(result)
                return result
            finally:
                self.stop()
                self._stages.pop()

        return timed

    def stop(self) -> None:
        """Count the time since the last call."""
        now, stage = time.perf_counter(), self._stages[-1]
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now

    def _settle(self, values: Any) -> None:
        if self._evaluates:
            items = dict(tree_flatten(values)).values()
            mx.eval([item for item in items if isinstance(item, mx.array)])


@contextmanager
def watched(watch: Stopwatch, places: Sequence[Place]) -> Iterator[None]:
    """Time the calls of these callables while the context lasts."""
    replaced: list[tuple[Any, str, Any]] = []
    try:
        for owner, name, stage in places:
            replaced.append((owner, name, vars(owner).get(name)))
            setattr(owner, name, watch.timed(getattr(owner, name), stage))
        yield
    finally:
        for owner, name, before in reversed(replaced):
            if before is None:  # it was inherited: an own attribute would hide the class's
                delattr(owner, name)
            else:
                setattr(owner, name, before)


@dataclass(frozen=True)
class RoundProfile:
    """The time of rounds: milliseconds per forward by stage.

    `begin_ms` are the milliseconds of the drafter's work on the prompt.
    """

    drafter: str
    forwards: int
    tokens: int
    begin_ms: float
    ms: dict[str, float]


@dataclass(frozen=True)
class ForwardProfile:
    """The time of a forward of `width` rows: milliseconds by part, each evaluated separately.

    `whole_ms` are the milliseconds of a forward that is evaluated at once.
    """

    width: int
    whole_ms: float
    ms: dict[str, float]


def profile_rounds(
    engine: Engine, drafter: Drafter, prompt: Sequence[int], params: GenerationParams
) -> RoundProfile:
    """Reply to a prompt and return the time of its rounds by stage, without the prefill."""
    engine.target.attach(drafter.readers)
    engine.target.reset()
    engine.target.observe(prompt[:-1])
    watch = Stopwatch()
    places: list[Place] = [
        (drafter, "start", _BEGIN),
        (drafter, "propose", "draft"),
        (engine.target, "forward_tree", "build the forward"),
        (engine.target, "logits", "build the forward"),
        (verification_room, "verify", "build the verification"),
        (pending_room, "sync", "wait for the device"),
        (PendingRound, "launch", "wait for the device"),  # it waits where MLX's queue is full
        (PendingRound, "wait", "read out"),
        (pending_room, "walk", "verify on the host"),
        (pending_room, "top_tokens", "top tokens on the host"),
        (Continuation, "emit", "emit"),
        (TextStream, "push", "detokenise"),
        (engine.target, "commit", "commit"),
        (drafter, "update", "update the drafter"),
    ]
    with watched(watch, places):
        stats = run_trial(engine, prompt, params, drafter).stats
        watch.stop()
    begin_ms = 1e3 * watch.seconds.pop(_BEGIN, 0.0)
    forwards = stats["target_forwards"]
    ms = {stage: 1e3 * seconds / forwards for stage, seconds in watch.seconds.items()}
    return RoundProfile(drafter.name, forwards, stats["generated_tokens"], begin_ms, ms)


def profile_forward(decoder: Decoder, width: int, *, repeats: int = 3) -> ForwardProfile:
    """Return the time of a forward of `width` rows by part, after the tokens in the cache."""
    forward = verify_forward(decoder)
    if not isinstance(decoder.model, Model):
        raise UnsupportedOperationError(
            "the parts of a forward are known in models of our own; load this one with port own"
        )
    layer = decoder.model.layers[0]
    places: list[Place] = [
        (type(decoder.model), "embed", "embedding"),
        (type(layer.self_attn), "__call__", "attention"),
        (type(layer.mlp), "__call__", "mlp"),
        (type(layer.input_layernorm), "__call__", "norms"),
        (type(decoder.model), "logits", "head"),
    ]
    forward(width)
    start = time.perf_counter()
    for _ in range(repeats):
        forward(width)
    whole_ms = 1e3 * (time.perf_counter() - start) / repeats
    watch = Stopwatch(evaluates=True)
    with watched(watch, places):
        for _ in range(repeats):
            forward(width)
        watch.stop()
    ms = {stage: 1e3 * seconds / repeats for stage, seconds in watch.seconds.items()}
    return ForwardProfile(width, whole_ms, ms)


def round_table(profile: RoundProfile) -> str:
    """Return a table of the time of rounds, the longest stage first."""
    total = sum(profile.ms.values())
    stages = sorted(profile.ms.items(), key=lambda item: -item[1])
    rows = [[f"  {stage}", f"{ms:.2f} ms", f"{ms / total:.1%}"] for stage, ms in stages]
    return (
        f"{profile.drafter}: {profile.tokens} tokens in {profile.forwards} target forwards, "
        f"{total:.1f} ms each\n{table(rows)}"
    )


def forward_table(profiles: Sequence[ForwardProfile]) -> str:
    """Return a table of the time of forwards, one column per width."""
    parts = dict.fromkeys(part for profile in profiles for part in profile.ms)
    return table(
        [
            ["rows", *(str(profile.width) for profile in profiles)],
            ["at once, ms", *(cell(profile.whole_ms, 1) for profile in profiles)],
            ["part by part, ms", *(cell(sum(profile.ms.values()), 1) for profile in profiles)],
            *(
                [f"  {part}", *(cell(one.ms.get(part, 0.0), 1) for one in profiles)]
                for part in parts
            ),
        ]
    )
