"""`python -m mlxspec_app.bench`: the CPU time of an update of the screen, over a whole reply.

It prints a table, and all figures as one JSON document in the last line. Each measurement runs in
a process and on a terminal of its own. The exit code is 1 if the updates in the last quarter of a
reply cost at least `FLATTEST` times those in the first.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, quantiles
from tempfile import TemporaryDirectory
from typing import Any

from mlxspec_app.bench.measure import Case, run_case
from mlxspec_app.bench.terminal import COLUMNS, ROWS, Terminal

COST = (
    Case("prose"),
    Case("prose", panels=True),
    Case("prose", above=400),
    Case("fence"),
    Case("prose", tokens=20_000, per_update=20),
    Case("fence", tokens=20_000, per_update=20),
)
LATENESS = (
    Case("prose", tokens=900, measures="lateness"),
    Case("prose", tokens=900, above=400, measures="lateness"),
)
FLATTEST = 1.3
_WINDOW = 25  # updates on either side of a token of the reply
_FASTEST_FPS = "500"  # Textual waits between frames, which would only make the run longer
_TIMEOUT_S = 3600.0

COST_HEADER = (
    f"{'text':<6}{'tokens':>7}{'a time':>7}{'above':>6}  {'panels':<7}"
    f"{'CPU ms per update, by quarter':^32}{'last/first':>10}{'at 500':>8}{'at 4000':>8}{'p99':>7}"
)
LATENESS_HEADER = f"{'frames beside two busy threads':<34}{'late ms, p50':>14}{'p99':>8}"


def measure(case: Case, *, headless: bool) -> list[float]:
    """Run a case in its own process and return its figures.

    Raises:
        RuntimeError: The process failed.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "figures.json"
        command = ["mlxspec_app.bench", "--case", json.dumps(asdict(case)), "--out", str(path)]
        own = {"TEXTUAL_FPS": _FASTEST_FPS} if case.measures == "cost" else {}
        if headless:
            whole = [sys.executable, "-m", *command, "--headless"]
            code = subprocess.run(whole, env={**os.environ, **own}, check=False).returncode
        else:
            code = Terminal(command, own).end(_TIMEOUT_S)
        if not path.exists():
            raise RuntimeError(f"the measurement of {case} ended with exit code {code}")
        figures: list[float] = json.loads(path.read_text())
    return figures


def summary(case: Case, figures: Sequence[float]) -> dict[str, Any]:
    """Return a summary of the figures of a case."""
    percentiles = quantiles(figures, n=100)
    found: dict[str, Any] = {**asdict(case), "p50": percentiles[49], "p99": percentiles[98]}
    if case.measures == "cost":
        size = len(figures) // 4
        quarters = [fmean(figures[part * size : (part + 1) * size]) for part in range(4)]
        found |= {"quarters": quarters, "last_to_first": quarters[-1] / quarters[0]}
        for token in (500, 4000):
            update = min(token // case.per_update, len(figures) - _WINDOW)
            found[f"at_{token}"] = fmean(figures[max(0, update - _WINDOW) : update + _WINDOW])
    return found


def row(found: dict[str, Any]) -> str:
    """Return the row of a summary below `COST_HEADER`, or below `LATENESS_HEADER`."""
    if found["measures"] == "lateness":
        title = f"{found['above']} messages above, {found['tokens'] // found['per_update']} frames"
        return f"{title:<34}{found['p50']:>14.1f}{found['p99']:>8.1f}"
    return (
        f"{found['text']:<6}{found['tokens']:>7}{found['per_update']:>7}{found['above']:>6}"
        f"  {'yes' if found['panels'] else 'no':<7}"
        + "".join(f"{quarter:>8.2f}" for quarter in found["quarters"])
        + f"{found['last_to_first']:>10.2f}{found['at_500']:>8.2f}{found['at_4000']:>8.2f}"
        + f"{found['p99']:>7.1f}"
    )


def machine() -> dict[str, str]:
    """Return the system, processor and versions on which the figures depend."""
    return {
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "textual": version("textual"),
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure everything and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m mlxspec_app.bench", description=__doc__)
    parser.add_argument("--headless", action="store_true", help="draw to no terminal")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.case:  # the process of one measurement: the terminal belongs to the app
        samples = run_case(Case(**json.loads(args.case)), headless=args.headless)
        Path(args.out).write_text(json.dumps(samples))
        return 0
    found = []
    for header, cases in ((COST_HEADER, COST), (LATENESS_HEADER, LATENESS)):
        print(header)
        for case in cases:
            found.append(summary(case, measure(case, headless=args.headless)))
            print(row(found[-1]), flush=True)
    terminal = "none" if args.headless else f"pseudo-terminal, {COLUMNS}x{ROWS}"
    print(json.dumps({"machine": machine(), "terminal": terminal, "cases": found}))
    return int(any(one.get("last_to_first", 0) >= FLATTEST for one in found))


if __name__ == "__main__":
    sys.exit(main())
