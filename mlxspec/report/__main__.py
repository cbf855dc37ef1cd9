"""Measures one part: `python -m mlxspec.report PART END`; prints a line of JSON for every finding.

END is a value of `time.monotonic`, which is the same clock in every process.
"""

import json
import sys
import time
from contextlib import redirect_stdout
from importlib import import_module

from mlxspec.report.allowance import Allowance


def main(name: str, end: str) -> None:
    """Measure a part, and print its findings."""
    allowance = Allowance(float(end) - time.monotonic())
    out = sys.stdout
    with redirect_stdout(sys.stderr):  # prints of libraries are not findings
        for finding in import_module(f"mlxspec.report.parts.{name}").measure(allowance):
            print(json.dumps(finding), file=out, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
