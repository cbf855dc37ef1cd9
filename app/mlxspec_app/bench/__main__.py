"""`python -m mlxspec_app.bench`: the CPU time of an update of the screen, over a whole reply.

It prints a table, and all figures as one JSON document in the last line. The exit code is 1 if the
updates in the last quarter of a reply cost at least `FLATTEST` times those in the first.
"""

import argparse
import json
import sys

from mlxspec_app.bench.measure import Case
from mlxspec_app.bench.report import (
    COST_HEADER,
    FLATTEST,
    LATENESS_HEADER,
    cost_row,
    lateness_row,
    machine,
    summary,
)
from mlxspec_app.bench.start import HAS_PTY, measure

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


def main(arguments: list[str] | None = None) -> int:
    """Measure everything and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m mlxspec_app.bench", description=__doc__)
    parser.add_argument("--headless", action="store_true", help="draw to no terminal")
    headless = parser.parse_args(arguments).headless or not HAS_PTY
    found = []
    print(COST_HEADER)
    for case in COST:
        figures = measure(case, headless=headless)
        print(cost_row(case, figures), flush=True)
        found.append(summary(case, figures))
    ratios = [row["last_to_first"] for row in found]
    print(f"\n{LATENESS_HEADER}")
    for case in LATENESS:
        figures = measure(case, headless=headless)
        print(lateness_row(case, figures), flush=True)
        found.append(summary(case, figures))
    terminal = "none" if headless else "pseudo-terminal, 140x50"
    print(json.dumps({"machine": machine(), "terminal": terminal, "cases": found}))
    return int(any(isinstance(ratio, float) and ratio >= FLATTEST for ratio in ratios))


if __name__ == "__main__":
    sys.exit(main())
