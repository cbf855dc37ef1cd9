"""Models of the Hugging Face hub: from its cache on this disk, or downloaded."""

import io
from contextlib import suppress
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.constants import HF_HUB_CACHE
from huggingface_hub.errors import (  # type: ignore[attr-defined]
    DryRunError,
    GatedRepoError,
    HTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import repo_folder_name
from tqdm.auto import tqdm

from mlxspec.errors import ModelNotFoundError, Progress, UnsupportedModelError
from mlxspec.loading.fetch.default_model import check_disk
from mlxspec.loading.fetch.large_file import fetch_large
from mlxspec.loading.folder import TOKENIZER, read_config, weight_files

_PATTERNS: dict[str, Any] = {
    "allow_patterns": ["*.json", "*.jinja", "*.safetensors"],
    "ignore_patterns": ["*/*", "consolidated*"],
}


def cached_folder(repository: str, revision: str | None = None) -> Path | None:
    """Return the folder of a repository in the hub's cache, or None; files may be missing."""
    try:
        return Path(snapshot_download(repository, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError as error:
        partial = getattr(error, "snapshot_path", None)
        return Path(partial) if partial else None


def hub_folder(repository: str, on_progress: Progress | None, revision: str | None) -> Path:
    """Return the folder of a model, whose name is its commit; download what is missing."""
    try:
        cached = _cached_snapshot(repository, revision)
        return cached or _fetched_snapshot(repository, on_progress, revision)
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
    # no network, a full disk, a name the hub refuses
    except (OSError, ValueError, HTTPError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ModelNotFoundError(
            f"{repository} is not cached and cannot be downloaded ({reason}): connect to the "
            "network, or give a folder or a GGUF file"
        ) from error


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


def _fetched_snapshot(repository: str, on_progress: Progress | None, revision: str | None) -> Path:
    """Download the missing files of a snapshot; what is here of them survives an interruption."""
    wanted = {"revision": revision, **_PATTERNS}
    done = total = 0
    with suppress(DryRunError):  # without a network, the download itself gives the reason
        silent = _bar_that_reports(lambda done, total: None, 0, 0)
        files = snapshot_download(repository, dry_run=True, tqdm_class=silent, **wanted)
        missing = [file for file in files if file.will_download]
        total = sum(file.file_size or 0 for file in missing)
        folder = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=repository, repo_type="model")
        parts = sum(part.stat().st_size for part in folder.glob("blobs/*.incomplete"))
        check_disk(folder, total - parts, repository)
        for file in missing:
            bar = on_progress and _bar_that_reports(on_progress, done, total)
            done += fetch_large(repository, file, folder, bar)
    bar = on_progress and _bar_that_reports(on_progress, done, total)
    return Path(snapshot_download(repository, tqdm_class=bar, **wanted))


def _bar_that_reports(on_progress: Progress, before: int, total: int) -> type[Any]:
    """Return a class of bars whose bytes come after others; `total` 0 is the bar's own."""
    most = before

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs | {"file": io.StringIO(), "disable": False})
            self.update(0)  # what was here before

        def display(self, *args: Any, **kwargs: Any) -> None:
            """Draw nothing."""

        def update(self, n: float | None = 1) -> Any:
            drawn = super().update(n)  # on_progress may raise, and tqdm's lock must be free then
            nonlocal most
            if self.unit == "B" and self.total and before + self.n > most:
                most = before + int(self.n)
                on_progress(most, total or int(self.total))
            return drawn

    return Bar
