"""One measurement: the CPU time of each update of the real chat screen.

An update is the work of a frame: apply some rounds, append their tokens, lay out, repaint. The
time is that of the whole process, Textual's writer thread included. Every sixth update also
renews the panels, as often as the chat does at 30 frames a second.
"""

import asyncio
import gc
import hashlib
import threading
import time
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from mlxspec.trace.events import GenerationStarted, TurnStarted
from mlxspec_app.app import MlxspecApp
from mlxspec_app.bench.load import TOKENS_PER_ROUND, FedSession, TextKind, conversation, rounds_of
from mlxspec_app.run import collect_rarely
from mlxspec_app.screens.chat.screen import ChatScreen

UPDATES_PER_PANELS = 6
FRAMES_PER_S = 30
_PYTHON_S = 0.005
_HASHED = bytes(1 << 22)


@dataclass(frozen=True)
class Case:
    """What to measure.

    Attributes:
        tokens: Length of the reply in tokens.
        per_update: Number of tokens of an update.
        above: Number of messages above the reply.
        panels: Whether updates also renew the panels around the transcript.
        measures: "cost": CPU time of updates; "lateness": delay of frames next to two busy threads.
    """

    text: TextKind = "prose"
    tokens: int = 4000
    per_update: int = 4
    above: int = 40
    panels: bool = False
    measures: Literal["cost", "lateness"] = "cost"

    @property
    def updates(self) -> int:
        return self.tokens // self.per_update


class BenchScreen(ChatScreen):
    """A chat screen with frames and panels under control of the measurement."""

    def __init__(self, case: Case, samples: list[float]) -> None:
        """Set up a measurement that fills `samples` and then leaves the app."""
        self._session = FedSession()
        super().__init__(self._session)
        self._case, self._samples = case, samples
        self._driven = False

    def on_screen_resume(self) -> None:
        if not self._driven:
            self._driven = True
            self.run_worker(self._measure())

    def tick(self) -> None:
        """Do nothing: the measurement calls the frames."""

    def update_panels(self, charts: bool = True) -> None:
        """Do nothing: the measurement updates the panels."""

    async def _measure(self) -> None:
        self._session.feed(conversation(self._case.above))
        super().tick()
        await self._painted()
        self._session.feed([TurnStarted("user", "Go on."), GenerationStarted("target", "drafter")])
        super().tick()
        super().update_panels()
        await self._painted()
        gc.collect()  # as the app does after it has opened a chat
        if self._case.measures == "cost":
            await self._measure_cost()
        else:
            await self._measure_lateness()
        self.app.exit()

    async def _measure_cost(self) -> None:
        rounds = rounds_of(self._case.text)
        for number in range(self._case.updates):
            few = islice(rounds, self._case.per_update // TOKENS_PER_ROUND)
            events = [event for round_ in few for event in round_]
            start = time.process_time()
            self._session.feed(events)
            super().tick()
            if self._case.panels and number % UPDATES_PER_PANELS == 0:
                super().update_panels()
            await self._painted()
            self._samples.append(1e3 * (time.process_time() - start))

    async def _measure_lateness(self) -> None:
        over = threading.Event()
        threads = [
            threading.Thread(target=self._produce, args=(over,)),
            threading.Thread(target=_compute, args=(over,)),
        ]
        for thread in threads:
            thread.start()
        due = time.monotonic()
        for number in range(self._case.updates):
            # A missed frame is skipped, not caught up: its delay must not count for the next ones.
            due = max(due + 1 / FRAMES_PER_S, time.monotonic())
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self._samples.append(1e3 * max(0.0, time.monotonic() - due))
            super().tick()
            if number % UPDATES_PER_PANELS == 0:
                super().update_panels()
        over.set()
        for thread in threads:
            thread.join()

    def _produce(self, over: threading.Event) -> None:
        """Feed rounds like an engine that holds the interpreter for `_PYTHON_S` in each."""
        pause = self._case.per_update / TOKENS_PER_ROUND / FRAMES_PER_S - _PYTHON_S
        for round_ in rounds_of(self._case.text):
            until = time.monotonic() + _PYTHON_S
            while time.monotonic() < until:
                pass
            self._session.feed(round_)
            if over.wait(pause):
                return

    async def _painted(self) -> None:
        painted = asyncio.Event()
        self.call_after_refresh(painted.set)
        await painted.wait()


def run_case(case: Case, *, headless: bool) -> list[float]:
    """Run one measurement in the app and return milliseconds, a figure per update."""
    samples: list[float] = []
    collect_rarely()
    app = MlxspecApp(lambda: BenchScreen(case, samples))
    app.run(headless=headless, size=(140, 50) if headless else None)
    return samples


def _compute(over: threading.Event) -> None:
    """Keep a core busy without the global interpreter lock, as a model does."""
    while not over.is_set():
        hashlib.sha256(_HASHED).digest()
