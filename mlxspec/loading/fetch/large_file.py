"""Large files of the hub: a download that was cut off goes on where it ended, in another run too.

The hub's client begins such a file anew. So it is fetched here, to where the client looks for it,
and gets its name only when it has the SHA-256 that the hub states.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import get_hf_file_metadata, hf_hub_url
from huggingface_hub.file_download import DryRunFileInfo, http_get, repo_folder_name
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from mlxspec.errors import ModelNotFoundError
from mlxspec.files import locked

_LARGE = 10 << 20  # bytes; a smaller file begins anew in a moment
_SHA256_LETTERS = 64


@dataclass(frozen=True)
class LargeFile:
    """A file of a repository that is not here, or not all of it."""

    url: str
    name: str
    size: int  # in bytes
    path: Path  # in the cache of the hub's client, named after its SHA-256

    @property
    def part(self) -> Path:
        """The place of its first bytes."""
        return self.path.with_name(f"{self.path.name}.incomplete")

    @property
    def bytes_here(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def fetch(self, bar: type[Any] | None) -> None:
        """Download what is missing; `bar` is a class like tqdm, None for the client's own."""
        folder = self.path.parent.parent
        lock = folder.parent / ".locks" / folder.name / f"{self.path.name}.lock"
        with locked(lock):  # the client's own lock: another process may fetch it too
            if not self.path.exists():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._fetch(bar)

    def _fetch(self, bar: type[Any] | None) -> None:
        with self.part.open("ab") as file:
            if file.tell() > self.size:
                file.truncate(0)
            http_get(
                self.url,
                file,
                resume_size=file.tell(),
                headers=build_hf_headers(),
                expected_size=self.size,
                displayed_filename=self.name,
                tqdm_class=bar,
            )
        with self.part.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != self.path.name:
            self.part.unlink()
            raise ModelNotFoundError(
                f"{self.name} was damaged on its way (SHA-256 {digest}, not {self.path.name}): "
                "download it again, it begins anew"
            )
        self.part.replace(self.path)


def large_file(repository: str, file: DryRunFileInfo, cache: Path) -> LargeFile | None:
    """Return a missing file of a repository; None if it is small or the hub states no SHA-256."""
    if (file.file_size or 0) < _LARGE:
        return None
    url = hf_hub_url(repository, file.filename, revision=file.commit_hash)
    facts = get_hf_file_metadata(url)
    if facts.size is None or len(facts.etag or "") != _SHA256_LETTERS:
        return None
    folder = cache / repo_folder_name(repo_id=repository, repo_type="model")
    return LargeFile(url, file.filename, facts.size, folder / "blobs" / str(facts.etag))
