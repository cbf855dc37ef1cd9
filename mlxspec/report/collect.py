"""Runs the parts one after the other, each in a process of its own.

Findings are lines of a file. So a process that crashes (as MLX does if memory is short) or takes
too long loses none of its earlier findings. After every part the whole report is saved.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlxspec.report.document import Record, Status
from mlxspec.report.plan import GRACE_S, SECONDS, Part

_ENDS_IN_S = 3.0  # seconds that a process has to end after a signal
_MOST_WORDS = 300

Save = Callable[[Mapping[str, Record]], None]
"""Saves the results so far."""


def collect(
    parts: Sequence[Part],
    save: Save,
    say: Callable[[str], None],
    *,
    seconds: float = SECONDS,
    run: Callable[[Part, float], Record] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Record]:
    """Measure as many parts as time allows.

    `save` is called with the results so far, before the first part and after each. `run` measures a
    part within a number of seconds; None for `run_part`. Raises `KeyboardInterrupt` if a part was
    interrupted; the results so far are saved.
    """
    end, run = clock() + seconds, run or run_part
    records = {part.name: Record("not run", reason="it was not begun") for part in parts}
    save(records)
    for number, part in enumerate(parts, 1):
        left = end - clock() - GRACE_S
        if left <= 0:
            records[part.name] = Record("not run", reason="no time was left")
            continue
        allowed = min(part.seconds, left)
        say(f"{number} of {len(parts)}: {part.doing}, {allowed:.0f} s at most")
        records[part.name] = record = run(part, allowed)
        save(records)
        if record.status == "interrupted":
            raise KeyboardInterrupt
        if record.status != "done":
            say(f"{part.name}: {record.status}{': ' if record.reason else ''}{record.reason}")
    save(records)
    return records


def command_of(part: Part, seconds: float) -> list[str]:
    """Return the command that measures a part; it prints findings as lines of JSON.

    The command gets the end time instead of the duration, because the start of the process counts.
    """
    end = time.monotonic() + seconds
    return [sys.executable, "-m", "mlxspec.report", part.module, f"{end:.3f}"]


def run_part(
    part: Part,
    seconds: float,
    *,
    command: Sequence[str] | None = None,
    grace_s: float = GRACE_S,
) -> Record:
    """Measure a part in a process of its own.

    The process may take `grace_s` seconds beyond the limit of `seconds`. If `command` is None, the
    process runs `command_of`.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mlxspec-") as name:
        printed, errors = Path(name) / "found", Path(name) / "errors"
        with printed.open("wb") as out, errors.open("wb") as err:
            process = subprocess.Popen(
                command or command_of(part, seconds),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **part.settings},
                start_new_session=True,  # Ctrl-C reaches only this process, which ends the other
            )
            status = _wait(process, seconds + grace_s)
        took = time.monotonic() - began
        reason = _reason(status, process.returncode, seconds, errors.read_bytes())
        return Record(status, took, reason, _findings(printed.read_bytes()))


def _wait(process: subprocess.Popen[bytes], seconds: float) -> Status:
    try:
        return "done" if process.wait(seconds) == 0 else "failed"
    except subprocess.TimeoutExpired:
        return "out of time"
    except KeyboardInterrupt:
        return "interrupted"
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process group: SIGINT first, so that the process can end its own children."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, number)
        try:
            process.wait(_ENDS_IN_S)
        except subprocess.TimeoutExpired:
            continue


def _reason(status: Status, code: int, seconds: float, errors: bytes) -> str:
    if status == "out of time":
        return f"it took more than {seconds:.0f} s"
    if status != "failed":
        return ""
    lines = errors.decode(errors="replace").strip().splitlines()
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"{how}: {lines[-1].strip() if lines else 'no message'}"[:_MOST_WORDS]


def _findings(printed: bytes) -> dict[str, Any]:
    """Return the printed findings; a line that is cut off is ignored."""
    found = {}
    for line in printed.decode(errors="replace").splitlines():
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(content, list) and len(content) == 2 and isinstance(content[0], str):
            found[content[0]] = content[1]
    return found
