"""Find the files of a model by its name: the default, a folder, a GGUF file, a hub id."""

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
    RevisionNotFoundError,
)
from tqdm.auto import tqdm

from mlxspec.errors import (
    ModelNotFoundError,
    UnsupportedModelError,
    UnsupportedOperationError,
)
from mlxspec.loading.fetch import default_model
from mlxspec.loading.fetch.default_model import fetch_default_model
from mlxspec.loading.fetch.disk import check_room
from mlxspec.loading.fetch.pip_download import ProgressCallback
from mlxspec.loading.fetch.places import named
from mlxspec.loading.folder import TOKENIZER, read_config, weight_files
from mlxspec.params import DEFAULT_MODEL

_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_PATTERNS: dict[str, Any] = {
    "allow_patterns": ["*.json", "*.jinja", "*.safetensors"],
    "ignore_patterns": ["*/*", "consolidated*"],
}


@dataclass(frozen=True)
class Source:
    """The location of a model: a folder or a GGUF file.

    `revision` is its commit or SHA-256, or "" if that is unknown.
    """

    path: Path
    name: str
    revision: str = ""


def find_source(
    source: str | PathLike[str] | None,
    on_progress: ProgressCallback | None = None,
    revision: str | None = None,
) -> Source:
    """Return the location of a model; download the default model or a hub model if necessary.

    The source is a folder, a GGUF file or a hub id; None for the default model. `on_progress` is
    called with the downloaded bytes and all bytes. `revision` is a branch, tag or commit of a hub
    model; None for the cached or newest one.

    Raises:
        ModelNotFoundError: There is no model of that name, or it cannot be downloaded.
        UnsupportedOperationError: There is a revision, but the source is not on the hub.
    """
    text = _word_of(source)
    if revision is not None and not _is_hub_id(text):
        raise UnsupportedOperationError(
            f"revision is not supported for {text!r}: only models of the hub have revisions; leave "
            "it out"
        )
    if text == "default":
        path = fetch_default_model(on_progress)
        return Source(path, DEFAULT_MODEL, default_model.SHA256)
    path = Path(expanduser(text))
    if text and path.is_dir():
        return Source(path, path.resolve().name)
    if path.is_file():
        return Source(path, path.stem)
    if _is_hub_id(text):
        return _from_hub(text, on_progress, revision)
    if (known := source_named(text)) is not None:
        return known
    raise ModelNotFoundError(
        f"{text!r} is not a model: give a folder, a GGUF file, a hub id such as "
        "'mlx-community/Qwen2.5-0.5B-Instruct-4bit', a name that `mlxspec models` lists, or "
        "nothing for the default model"
    )


def find_local(source: str) -> Source | None:
    """Return the location of a model on this disk; None if it is missing or the name is invalid."""
    if source == "" or _word_of(source) == "default":
        path = default_model.default_model_path()
        here = default_model.has_default_model()
        return Source(path, DEFAULT_MODEL, default_model.SHA256) if here else None
    try:
        if not _HUB_ID.fullmatch(source) or Path(expanduser(source)).exists():
            return find_source(source)
        folder = cached_folder(source)
    except (ModelNotFoundError, ValueError):  # no such file, or an invalid hub id
        return None
    return Source(folder, source, folder.name) if folder else None


def _word_of(source: str | PathLike[str] | None) -> str:
    """Return the requested source; "default" also for the name of the default model."""
    text = "default" if source is None else fspath(source)
    return "default" if text == DEFAULT_MODEL and not Path(text).exists() else text


def source_named(name: str) -> Source | None:
    """Return the model on this disk that has a name, such as the name in the header of a chat.

    Raises:
        ModelNotFoundError: Several models have that name.
    """
    found = named(name)
    if len(found) > 1:
        where = ", ".join(place.source for place in found)
        raise ModelNotFoundError(
            f"{name!r} is the name of several models here: give one of {where}"
        )
    return Source(found[0].path, name) if found else None


def _is_hub_id(text: str) -> bool:
    path = Path(expanduser(text))
    return bool(_HUB_ID.fullmatch(text)) and path.suffix != ".gguf" and not path.exists()


def cached_folder(repository: str, revision: str | None = None) -> Path | None:
    """Return the folder of a repository in the hub's cache, complete or not, or None.

    The hub calls a snapshot incomplete if any file of the repository is missing, even one that is
    not needed here. So the caller checks for the files that it needs.
    """
    try:
        return Path(snapshot_download(repository, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError as error:
        partial = getattr(error, "snapshot_path", None)
        return Path(partial) if partial else None


def _from_hub(
    repository: str, on_progress: ProgressCallback | None, revision: str | None
) -> Source:
    try:
        folder = _cached_snapshot(repository, revision)
        folder = folder or _fetched_snapshot(repository, on_progress, revision)
    except GatedRepoError as error:
        raise ModelNotFoundError(
            f"{repository} is given only to accounts that accepted its terms: accept them on its "
            "page, log in with `hf auth login`, or choose another model"
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelNotFoundError(
            f"there is no folder {repository!r} here and no such model on the hub: check the name"
        ) from error
    except RevisionNotFoundError as error:
        raise ModelNotFoundError(
            f"{repository} has no revision {revision!r}: give a branch, a tag or a commit of it"
        ) from error
    except (OSError, ValueError) as error:  # no network, a full disk, a name the hub refuses
        raise ModelNotFoundError(
            f"{repository} is not cached and cannot be downloaded ({_first_line(error)}): connect "
            "to the network, or give a folder or a GGUF file"
        ) from error
    return Source(folder, repository, folder.name)


def _cached_snapshot(repository: str, revision: str | None) -> Path | None:
    """Return the snapshot on this disk, or None where it is missing or incomplete."""
    folder = cached_folder(repository, revision)
    if folder is None:
        return None
    try:
        read_config(folder)
        weight_files(folder)
        # A head has none; an interrupted download may have none either.
        if not (folder / TOKENIZER).is_file():
            snapshot_download(repository, revision=revision, local_files_only=True, **_PATTERNS)
    except (LocalEntryNotFoundError, UnsupportedModelError):
        return None
    return folder


def _fetched_snapshot(
    repository: str, on_progress: ProgressCallback | None, revision: str | None
) -> Path:
    """Download the missing files of a snapshot; complete files survive an interruption."""
    bar = None if on_progress is None else _bar_that_reports(on_progress)
    wanted = {"revision": revision, "tqdm_class": bar, **_PATTERNS}
    with suppress(DryRunError):  # without a network, the download itself gives the reason
        files = snapshot_download(repository, dry_run=True, **wanted)
        missing = sum(file.file_size or 0 for file in files if file.will_download)
        check_room(Path(HF_HUB_CACHE), missing, repository)
    return Path(snapshot_download(repository, **wanted))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _bar_that_reports(on_progress: ProgressCallback) -> type[Any]:
    """Return a class of progress bars that draw nothing and report bytes."""
    most = 0

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs | {"file": io.StringIO(), "disable": False})

        def display(self, *args: Any, **kwargs: Any) -> None:
            """Draw nothing."""

        def update(self, n: float | None = 1) -> Any:
            drawn = super().update(n)  # on_progress may raise, and tqdm's lock must be free then
            nonlocal most
            if self.unit == "B" and self.total and self.n > most:
                most = int(self.n)
                on_progress(most, int(self.total))
            return drawn

    return Bar
