"""Measures the time to the app's first painted frame, on a terminal of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator

from mlxspec.report.allowance import Allowance, Finding

_COMMAND = (sys.executable, "-m", "mlxspec_app.bench.startup")


def measure(time: Allowance) -> Iterator[Finding]:
    """Yield the figures of the app's own measurement."""
    told = subprocess.run(
        _COMMAND, stdout=subprocess.PIPE, text=True, timeout=time.seconds_left, check=True
    ).stdout
    yield from json.loads(told.splitlines()[-1]).items()
