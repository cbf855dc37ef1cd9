"""Measures the CPU time of an update of the screen, over a whole reply: by hand.

    python -m tests.campaigns.screen_costs

An update is the work of a frame: apply some rounds, append their tokens, lay out, repaint. Each
measurement runs in a process and on a terminal of its own. The last line is one JSON document. The
exit code is 1 if updates in the last quarter of a reply cost `FLATTEST` times those in the first.
"""

import asyncio
import gc
import json
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain, islice
from pathlib import Path
from statistics import fmean, quantiles
from tempfile import TemporaryDirectory
from typing import Any

from mlxspec.trace.events import GenerationStarted, TurnStarted
from mlxspec_app.app import MlxspecApp
from mlxspec_app.bench.startup import Terminal
from mlxspec_app.run import collect_rarely
from mlxspec_app.screens.chat.screen import ChatScreen
from tests.campaigns.screen_costs.load import TOKENS_PER_ROUND, FedSession, conversation, rounds_of

FLATTEST = 1.3
UPDATES_PER_PANELS = 6  # as often as the chat renews them at 30 frames a second
_FASTEST_FPS = "500"  # Textual waits between frames, which would only make the run longer
_TIMEOUT_S = 3600.0
_SHARES = ("1/4", "2/4", "3/4", "4/4")
_HEAD = ("text", "tokens", "a time", "above", "panels", "p50", "p99", *_SHARES)


@dataclass(frozen=True)
class Case:
    """What to measure."""

    text: str = "prose"  # the kind of reply, as in `rounds_of`
    tokens: int = 4000
    per_update: int = 4  # tokens
    above: int = 40  # messages above the reply
    panels: bool = False  # whether updates also renew the panels around the transcript


CASES = (
    Case(),
    Case(panels=True),
    Case(above=400),
    Case("fence"),
    Case(tokens=20_000, per_update=20),
    Case("fence", tokens=20_000, per_update=20),
)


class BenchScreen(ChatScreen):
    """A chat screen with frames and panels under control of the measurement."""

    def __init__(self, case: Case, samples: list[float]) -> None:
        """Set up a measurement that fills `samples` with milliseconds, and then leaves the app."""
        self._session = FedSession()
        super().__init__(self._session)
        self._case, self._samples = case, samples

    def on_mount(self) -> None:
        self.call_after_refresh(lambda: self.run_worker(self._measure()))

    def tick(self) -> None:
        """Do nothing: the measurement applies the events."""

    def update_panels(self, charts: bool = True) -> None:
        """Do nothing: the measurement renews the panels."""

    async def _measure(self) -> None:
        self._session.feed(conversation(self._case.above))
        await self._update(panels=False)
        self._session.feed([TurnStarted("user", "Go on."), GenerationStarted("target", "drafter")])
        await self._update(panels=True)
        gc.collect()  # as the app does after it has opened a chat
        rounds = rounds_of(self._case.text)
        for number in range(self._case.tokens // self._case.per_update):
            few = islice(rounds, self._case.per_update // TOKENS_PER_ROUND)
            events = list(chain.from_iterable(few))
            start = time.process_time()
            self._session.feed(events)
            await self._update(panels=self._case.panels and number % UPDATES_PER_PANELS == 0)
            self._samples.append(1e3 * (time.process_time() - start))
        self.app.exit()

    async def _update(self, *, panels: bool) -> None:
        super().tick()
        if panels:
            super().update_panels()
        painted = asyncio.Event()
        self.call_after_refresh(painted.set)
        await painted.wait()


def measure(case: Case) -> list[float]:
    """Run a case in its own process; return the milliseconds of each update."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "figures.json"
        command = ["tests.campaigns.screen_costs", json.dumps(asdict(case)), str(path)]
        code = Terminal(command, {"TEXTUAL_FPS": _FASTEST_FPS}).end(_TIMEOUT_S)
        if not path.exists():
            raise RuntimeError(f"the measurement of {case} ended with exit code {code}")
        figures: list[float] = json.loads(path.read_text())
    return figures


def summary(case: Case, figures: Sequence[float]) -> dict[str, Any]:
    """Return the figures of a case: percentiles, and means by quarter of the reply."""
    percentiles, size = quantiles(figures, n=100), len(figures) // 4
    quarters = [fmean(figures[part * size : (part + 1) * size]) for part in range(4)]
    return {**asdict(case), "p50": percentiles[49], "p99": percentiles[98], "quarters": quarters}


def main(arguments: Sequence[str]) -> int:
    """Measure everything and return the exit code; with a case and a file, measure that one."""
    if arguments:  # the process of one measurement: the terminal belongs to the app
        case, path, samples = Case(**json.loads(arguments[0])), Path(arguments[1]), list[float]()
        collect_rarely()
        MlxspecApp(lambda: BenchScreen(case, samples)).run()
        path.write_text(json.dumps(samples))
        return 0
    found = [summary(case, measure(case)) for case in CASES]
    print("CPU ms per update, and by quarter of the reply")
    rows = [[*_HEAD]]
    for one in found:
        names = (str(one[field.name]) for field in fields(Case))
        rows.append([*names, *(f"{ms:.2f}" for ms in (one["p50"], one["p99"], *one["quarters"]))])
    for row in rows:
        print("".join(f"{text:>8}" for text in row))
    machine = {"system": platform.platform(), "python": platform.python_version()}
    print(json.dumps({"machine": machine, "cases": found}))
    return int(any(one["quarters"][-1] >= FLATTEST * one["quarters"][0] for one in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
