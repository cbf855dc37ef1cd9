"""One measurement in its own process: `python -m mlxspec_app.bench.one CASE FILE [--headless]`.

The case is JSON. The figures go to the file, because the terminal belongs to the app; with
`--headless` the app draws to no terminal.
"""

import json
import sys
from pathlib import Path

from mlxspec_app.bench.measure import Case, run_case


def main(case: str, path: str, *options: str) -> None:
    """Measure a case and write its figures."""
    figures = run_case(Case(**json.loads(case)), headless="--headless" in options)
    Path(path).write_text(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
