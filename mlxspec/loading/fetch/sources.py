"""What a user calls a model, and where it lies: the default, a folder, a GGUF file, a hub id."""

import io
import re
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike, fspath
from os.path import expanduser
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.constants import HF_HUB_CACHE
from huggingface_hub.errors import (
    DryRunError,
    GatedRepoError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from tqdm.auto import tqdm

from mlxspec.errors import ModelNotFoundError, UnsupportedModelError
from mlxspec.loading.fetch import default_model
from mlxspec.loading.fetch.default_model import fetch_default_model
from mlxspec.loading.fetch.disk import check_room
from mlxspec.loading.fetch.pip_download import ProgressCallback
from mlxspec.loading.folder import TOKENIZER, read_config, weight_files
from mlxspec.params import DEFAULT_MODEL

_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_PATTERNS: dict[str, Any] = {
    "allow_patterns": ["*.json", "*.jinja", "*.safetensors"],
    "ignore_patterns": ["*/*", "consolidated*"],
}


@dataclass(frozen=True)
class Source:
    """Where a model lies.

    Attributes:
        path: A folder or a GGUF file.
        name: What to call it.
        revision: Commit or SHA-256, "" where unknown.
    """

    path: Path
    name: str
    revision: str = ""


def find_source(
    source: str | PathLike[str] | None, on_progress: ProgressCallback | None = None
) -> Source:
    """Return where a model lies, fetching the default model or a hub model where needed.

    Raises:
        ModelNotFoundError: There is nothing of that name, here or in reach.
    """
    text = "default" if source is None else fspath(source)
    if text == "default":
        path = fetch_default_model(on_progress)
        return Source(path, DEFAULT_MODEL, default_model.SHA256)
    path = Path(expanduser(text))
    if text and path.is_dir():
        return Source(path, path.resolve().name)
    if path.is_file():
        return Source(path, path.stem)
    if _HUB_ID.fullmatch(text) and path.suffix != ".gguf":
        return _from_hub(text, on_progress)
    raise ModelNotFoundError(
        f"{text!r} is no model: give a folder, a GGUF file, a hub id such as "
        "'mlx-community/Qwen2.5-0.5B-Instruct-4bit', or nothing for the default model"
    )


def find_local(source: str) -> Source | None:
    """Return where a model lies that is here already, None for one to fetch or to correct."""
    if source in ("", "default"):
        path = default_model.default_model_path()
        here = default_model.has_default_model()
        return Source(path, DEFAULT_MODEL, default_model.SHA256) if here else None
    try:
        if not _HUB_ID.fullmatch(source) or Path(expanduser(source)).exists():
            return find_source(source)
        folder = cached_folder(source)
    except (ModelNotFoundError, ValueError):  # nothing there, or no name for the hub
        return None
    return Source(folder, source, folder.name) if folder else None


def cached_folder(repository: str) -> Path | None:
    """Return what the hub's cache folder holds of a repository, whole or not, or None.

    The hub calls a snapshot incomplete that lacks any file of the repository, one that is not
    wanted here too, so those who read the folder look for what they need.
    """
    try:
        return Path(snapshot_download(repository, local_files_only=True))
    except LocalEntryNotFoundError as error:
        partial = getattr(error, "snapshot_path", None)
        return Path(partial) if partial else None


def _from_hub(repository: str, on_progress: ProgressCallback | None) -> Source:
    try:
        folder = _cached_snapshot(repository) or _fetched_snapshot(repository, on_progress)
    except GatedRepoError as error:
        raise ModelNotFoundError(
            f"{repository} is given only to accounts that accepted its terms: accept them on its "
            "page, log in with `hf auth login`, or choose another model"
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelNotFoundError(
            f"there is no folder {repository!r} here and no such model on the hub: check the name"
        ) from error
    except (OSError, ValueError) as error:  # no network, a full disk, a name the hub refuses
        raise ModelNotFoundError(
            f"{repository} is not cached and cannot be fetched ({_first_line(error)}): connect to "
            "the network, or give a folder or a GGUF file"
        ) from error
    return Source(folder, repository, folder.name)


def _cached_snapshot(repository: str) -> Path | None:
    """Return the snapshot on this disk, or None where it is missing or incomplete."""
    folder = cached_folder(repository)
    if folder is None:
        return None
    try:
        read_config(folder)
        weight_files(folder)
        if not (folder / TOKENIZER).is_file():  # a head has none; a download that broke off, too
            snapshot_download(repository, local_files_only=True, **_PATTERNS)
    except (LocalEntryNotFoundError, UnsupportedModelError):
        return None
    return folder


def _fetched_snapshot(repository: str, on_progress: ProgressCallback | None) -> Path:
    """Fetch what is missing of a snapshot; whole files are kept if that breaks off."""
    bar = None if on_progress is None else _bar_that_reports(on_progress)
    with suppress(DryRunError):  # out of reach: the download itself says why
        files = snapshot_download(repository, dry_run=True, tqdm_class=bar, **_PATTERNS)
        missing = sum(file.file_size or 0 for file in files if file.will_download)
        check_room(Path(HF_HUB_CACHE), missing, repository)
    return Path(snapshot_download(repository, tqdm_class=bar, **_PATTERNS))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _bar_that_reports(on_progress: ProgressCallback) -> type[Any]:
    """Return a progress bar class that draws nothing and reports bytes."""
    most = 0

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs | {"file": io.StringIO(), "disable": False})

        def display(self, *args: Any, **kwargs: Any) -> None:
            """Draw nothing."""

        def update(self, n: float | None = 1) -> Any:
            drawn = super().update(n)  # what reports may raise, and must not hold tqdm's lock then
            nonlocal most
            if self.unit == "B" and self.total and self.n > most:
                most = int(self.n)
                on_progress(most, int(self.total))
            return drawn

    return Bar
