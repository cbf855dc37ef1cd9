"""Load trained heads of any known layout, and give all of them normalised names.

The names of the tensors determine the layout, because configs of heads contain little and some
published ones are wrong. Sizes are checked against the target before anything is computed.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path

import mlx.core as mx

from mlxspec.device import backend
from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.fetch.pip_download import ProgressCallback
from mlxspec.loading.heads.checkpoint import HeadCheckpoint
from mlxspec.loading.heads.eagle import is_eagle, read_eagle
from mlxspec.loading.heads.eagle3 import is_eagle3, read_eagle3
from mlxspec.loading.heads.medusa import is_medusa, read_medusa
from mlxspec.loading.heads.names import ParsedHead
from mlxspec.loading.heads.shapes import check_head
from mlxspec.loading.heads.source import HeadFiles, find_head, read_head_files
from mlxspec.models import TargetConfig

__all__ = ["HeadCheckpoint", "load_head"]

_LAYOUTS: tuple[
    tuple[Callable[[HeadFiles], bool], Callable[[HeadFiles, TargetConfig], ParsedHead]], ...
] = ((is_medusa, read_medusa), (is_eagle3, read_eagle3), (is_eagle, read_eagle))


def load_head(
    source: str | PathLike[str],
    target: TargetConfig,
    *,
    on_progress: ProgressCallback | None = None,
) -> HeadCheckpoint:
    """Load a trained head for a target, from a folder, a file or a hub id.

    `on_progress` is called with the downloaded bytes and all bytes during a download.

    Raises:
        ModelNotFoundError: The head does not exist, or cannot be downloaded.
        UnsupportedModelError: The head is damaged, incomplete, of no known layout, or made for
            another target.
    """
    backend.check()
    found = find_head(source, on_progress)
    files = read_head_files(found.path)
    parsed = _parse(files, target) if isinstance(files, HeadFiles) else ParsedHead(files, {})
    head = check_head(parsed.head, target, _described(found.path, parsed.head), parsed.origins)
    mx.eval(list(head.tensors.values()))
    return replace(head, name=found.name)


def _described(path: Path, head: HeadCheckpoint) -> str:
    """Return the path, and the name of the target that the head was trained for, if it has one."""
    stated = head.card.get("target")
    name = stated.get("name") if isinstance(stated, Mapping) else stated
    return f"{path} (trained for {name})" if name else str(path)


def _parse(files: HeadFiles, target: TargetConfig) -> ParsedHead:
    for is_this, read in _LAYOUTS:
        if is_this(files):
            return read(files, target)
    some = ", ".join(sorted(files.tensors)[:4]) or "nothing"
    raise UnsupportedModelError(
        f"{files.place} is not a drafter of a known layout (it holds {some}): Medusa, EAGLE and "
        "EAGLE-3 heads can be loaded, and files that mlxspec trained"
    )
