"""How much time each stage of a round takes; the wait for the device has all lazy work in it."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import wraps
from typing import Any
from unittest.mock import patch

from mlxspec.drafters.base import Drafter
from mlxspec.engine.engine import Engine
from mlxspec.measure.tables import table
from mlxspec.measure.trial import run_trial
from mlxspec.params import GenerationParams
from mlxspec.reply import pending as pending_room
from mlxspec.reply import verification as verification_room
from mlxspec.reply.continuation import Continuation
from mlxspec.reply.pending import PendingRound
from mlxspec.text.stream import TextStream

REST = "the rest"
_BEGIN = "begin"  # once per reply


class Stopwatch:
    """Adds up the seconds by stage; the time of an inner stage does not count in the outer one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._stages = [REST]
        self._since = time.perf_counter()

    def timed(self, call: Callable[..., Any], stage: str) -> Callable[..., Any]:
        @wraps(call)
        def timed(*args: Any, **more: Any) -> Any:
            self.stop()
            self._stages.append(stage)
            try:
                return call(*args, **more)
            finally:
                self.stop()
                self._stages.pop()

        return timed

    def stop(self) -> None:
        """Count the time since the last call."""
        now, stage = time.perf_counter(), self._stages[-1]
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now


@dataclass(frozen=True)
class RoundProfile:
    """The time of rounds."""

    drafter: str
    forwards: int
    tokens: int
    begin_ms: float  # of the drafter's work on the prompt
    ms: dict[str, float]  # per forward, by stage


def profile_rounds(
    engine: Engine, drafter: Drafter, prompt: Sequence[int], params: GenerationParams
) -> RoundProfile:
    """Reply to a prompt and return the time of its rounds by stage, without the prefill."""
    engine.target.attach(drafter.readers)
    engine.target.reset()
    engine.target.observe(prompt[:-1])
    watch = Stopwatch()
    places: list[tuple[Any, str, str]] = [  # an owner, a callable of it, the stage of its calls
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
    with ExitStack() as stack:
        for owner, name, stage in places:
            timed = watch.timed(getattr(owner, name), stage)
            stack.enter_context(patch.object(owner, name, timed))
        stats = run_trial(engine, prompt, params, drafter).stats
        watch.stop()
    begin_ms = 1e3 * watch.seconds.pop(_BEGIN, 0.0)
    forwards = stats["target_forwards"]
    ms = {stage: 1e3 * seconds / forwards for stage, seconds in watch.seconds.items()}
    return RoundProfile(drafter.name, forwards, stats["generated_tokens"], begin_ms, ms)


def round_table(profile: RoundProfile) -> str:
    """Return a table of the time of rounds, the longest stage first."""
    total = sum(profile.ms.values())
    stages = sorted(profile.ms.items(), key=lambda item: -item[1])
    rows = [[f"  {stage}", f"{ms:.2f} ms", f"{ms / total:.1%}"] for stage, ms in stages]
    return (
        f"{profile.drafter}: {profile.tokens} tokens in {profile.forwards} target forwards, "
        f"{total:.1f} ms each\n{table(rows)}"
    )
