"""Large files of the hub: a download that was cut off goes on where it ended, in another run too.

The hub's client begins such a file anew. So it is fetched here, to where the client looks for it,
and gets its name only when it has the SHA-256 that the hub states.
"""

import hashlib
from pathlib import Path
from typing import Any

from huggingface_hub import get_hf_file_metadata, hf_hub_url
from huggingface_hub.file_download import DryRunFileInfo, http_get
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from mlxspec.errors import ModelNotFoundError
from mlxspec.files import locked

_LARGE = 10 << 20  # bytes; a smaller file begins anew in a moment
_SHA256_LETTERS = 64


def fetch_large(repository: str, file: DryRunFileInfo, folder: Path, bar: type[Any] | None) -> int:
    """Download what is missing of a file; return its size, or 0 if it is left to the hub's client.

    `folder` is that of the repository in the client's cache, and `bar` a class like tqdm, None for
    the client's own.
    """
    url = hf_hub_url(repository, file.filename, revision=file.commit_hash)
    facts = get_hf_file_metadata(url) if (file.file_size or 0) >= _LARGE else None
    if facts is None or facts.size is None or len(facts.etag or "") != _SHA256_LETTERS:
        return 0
    path = folder / "blobs" / str(facts.etag)
    # The lock is the client's own, and so is the name of a part; others may share the cache.
    lock = folder.parent / ".locks" / folder.name / f"{path.name}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with locked(lock):
        if not path.exists():  # another process may have fetched it meanwhile
            part = path.with_name(f"{path.name}.incomplete")
            part.parent.mkdir(parents=True, exist_ok=True)
            with part.open("ab") as data:
                if data.tell() > facts.size:
                    data.truncate(0)
                http_get(
                    url,
                    data,
                    resume_size=data.tell(),
                    headers=build_hf_headers(),
                    expected_size=facts.size,
                    displayed_filename=file.filename,
                    tqdm_class=bar,
                )
            _check(part, path.name, file.filename)
            part.replace(path)
    return facts.size


def _check(part: Path, sha256: str, name: str) -> None:
    with part.open("rb") as data:
        digest = hashlib.file_digest(data, "sha256").hexdigest()
    if digest != sha256:
        part.unlink()
        raise ModelNotFoundError(
            f"{name} was damaged on its way (SHA-256 {digest}, not {sha256}): download it again, "
            "it begins anew"
        )
