"""Speeds of plain and drafted decoding over links of several latencies: slow, by hand.

    python -m tests.campaigns.slow_link [--model MODEL] [--tokens 16] [--repeat 3] [--delays 0 1 5]

Two processes over loopback; milliseconds are added to each collective (`tests/support/slow_link`).
Arms and delays take turns, so what else the machine does slows all of them alike; the cost curve is
taken before and after the arms. Prints the bytes of weights of each rank, and medians: tokens/s,
what the cost curve promises (as in `doctor --hosts`), and that over what was measured.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from statistics import harmonic_mean, median

from tests.support.paths import ROOT

WIDTHS = (10, 16, 11, 15)
PROMPT = "one two three four five six one two three four five six one two three four five six one"


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--delays", type=float, nargs="+", default=(0.0, 1.0, 5.0))
    args = parser.parse_args()
    if "MLXSPEC_SLOW_LINK" not in os.environ:
        _begin_again()
    measure(args, Path(os.environ["MLXSPEC_SLOW_LINK"]))


def _begin_again() -> None:
    """Start this program with the slow link on its path: Python reads that at its start."""
    file = Path(tempfile.mkdtemp()) / "ms"
    file.write_text("0")
    path = os.pathsep.join(
        [str(ROOT / "tests/support/slow_link"), os.environ.get("PYTHONPATH", "")]
    )
    environment = {**os.environ, "MLXSPEC_SLOW_LINK": str(file), "PYTHONPATH": path}
    command = [sys.executable, "-m", "tests.campaigns.slow_link", *sys.argv[1:]]
    os.execve(sys.executable, command, environment)


def measure(args: argparse.Namespace, file: Path) -> None:
    """Measure all arms and delays in turn."""
    from mlxspec import api
    from mlxspec.budget import FixedBudget
    from mlxspec.distributed import ranks
    from mlxspec.drafters.none import NoDrafter
    from mlxspec.drafters.suffix import SuffixDrafter
    from mlxspec.measure.cost import estimated_tps, forward_cost
    from mlxspec.params import GenerationParams, Options
    from mlxspec.trace.stats import GenerationStats

    prepared = api.prepare(args.model, Options(drafter="none", hosts="2"), say=print)
    engine = prepared.engine
    params = GenerationParams(max_tokens=args.tokens, ignore_eos=True, num_draft_tokens=7)
    found: dict[tuple[float, str], list[tuple[float, ...]]] = {}
    for _ in range(args.repeat):
        for delay in args.delays:
            file.write_text(str(delay))
            costs, rows = [forward_cost(prepared.context.engine)], {}
            for drafter in (NoDrafter(), SuffixDrafter()):
                stats = GenerationStats()
                for event in engine.generate(PROMPT, params, drafter=drafter, budget=FixedBudget()):
                    stats.add(event)
                rows[drafter.name] = stats
            costs.append(
                forward_cost(prepared.context.engine)
            )  # a machine that slows down shows here
            for name, stats in rows.items():
                tokens, speed = args.tokens / stats.target_forwards, stats.generation_tps
                both = [estimated_tps(cost, tokens, stats.mean_rows) for cost in costs]
                estimate = harmonic_mean(both)
                row = speed, tokens, estimate, estimate / speed
                found.setdefault((delay, name), []).append(row)
    print(f"{engine.weights}; weights by rank: {ranks.start('2').sizes} bytes")
    print("ms added  drafter   tokens/s  tokens/forward  estimated  over measured")
    for (delay, name), rows in found.items():
        middle = [median(column) for column in zip(*rows, strict=True)]
        cells = (f"{value:>{width}.2f}" for value, width in zip(middle, WIDTHS, strict=True))
        print(f"{delay:>8g}  {name:<8}{''.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
