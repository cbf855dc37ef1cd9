"""The facts that ranks compare before they load a model: versions and stored weights."""

import hashlib
import json
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any

from mlxspec.errors import MlxspecError, ModelNotFoundError, RankLostError
from mlxspec.loading.fetch.sources import find_source
from mlxspec.loading.folder import CONFIG

_SAMPLES = 64  # samples of a file, besides its head
_SAMPLE = 1 << 12  # bytes of a sample
_HEAD = 1 << 20  # bytes of the head: names and shapes of the tensors
_MOST = 1000  # characters of a reason
_MISSING = "missing"


def facts_of(source: str | PathLike[str] | None) -> dict[str, str]:
    """Return what must be the same on all ranks; a model that is not found is a fact, too."""
    try:
        path = find_source(source).path
    except MlxspecError as error:
        return {_MISSING: str(error)[:_MOST]}
    versions = {name: version(name) for name in ("mlx", "mlx-lm")}
    own = import_module("mlxspec").__version__
    return {**versions, "mlxspec": own, "weights": weights_fingerprint(path)}


def check_same(facts: Sequence[dict[str, Any]]) -> None:
    """Compare the facts of ranks 0, 1, 2, ..."""
    if missing := [
        f"rank {rank} does not find the model: {one[_MISSING]}"
        for rank, one in enumerate(facts)
        if _MISSING in one
    ]:
        raise ModelNotFoundError("; ".join(missing))
    if differences := [
        f"{name} is {json.dumps(one[name])} on rank {rank} and {json.dumps(value)} on rank 0"
        for rank, one in enumerate(facts)
        for name, value in facts[0].items()
        if one[name] != value
    ]:
        raise RankLostError(
            f"the ranks do not fit together: {'; '.join(differences)}: give all machines the same "
            "files of the model, and install the same versions"
        )


def weights_fingerprint(path: Path) -> str:
    """Return a fingerprint of a model's folder or GGUF file: config, sizes, headers and samples.

    Reading all weights of a model that fills several machines would take minutes. So 64 samples of
    every file are compared, which distinguishes checkpoints and finds a truncated file.
    """
    files = [path]
    if path.is_dir():
        files = sorted([path / CONFIG, *path.glob("*.safetensors")])
    digest = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.suffix} {size}\n".encode())
        with file.open("rb") as content:
            digest.update(content.read(_HEAD))
            for sample in range(_SAMPLES):
                content.seek(size * sample // _SAMPLES)
                digest.update(content.read(_SAMPLE))
    return digest.hexdigest()[:16]
