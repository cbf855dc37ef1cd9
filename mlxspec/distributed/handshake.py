"""The facts that ranks compare before they load a model: versions, settings and stored weights."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from mlxspec.errors import RankLostError
from mlxspec.loading.folder import CONFIG
from mlxspec.params import Options

_SAMPLES = 64  # samples of a file, besides its head
_SAMPLE = 1 << 12  # bytes of a sample
_HEAD = 1 << 20  # bytes of the head: names and shapes of the tensors
SETTINGS = ("dtype", "port", "max_kv_size", "keep", "kv_bits")


def versions() -> dict[str, str]:
    """Return the versions that must be the same on all ranks."""
    own = cast(str, import_module("mlxspec").__version__)
    return {"mlx": version("mlx"), "mlx-lm": version("mlx-lm"), "mlxspec": own}


def settings_of(options: Options) -> dict[str, Any]:
    """Return the settings that shape forwards and caches."""
    return {name: getattr(options, name) for name in SETTINGS}


def weights_fingerprint(path: Path) -> str:
    """Return a fingerprint of a model's folder or GGUF file: config, sizes, headers and samples.

    Reading all weights of a model that fills several machines would take minutes. So 64 samples of
    every file are compared, which distinguishes checkpoints and finds a truncated file.
    """
    digest = hashlib.sha256()
    for file in _files(path):
        size = file.stat().st_size
        digest.update(f"{file.suffix} {size}\n".encode())
        with file.open("rb") as content:
            digest.update(content.read(_HEAD))
            for sample in range(_SAMPLES):
                content.seek(size * sample // _SAMPLES)
                digest.update(content.read(_SAMPLE))
    return digest.hexdigest()[:16]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted([path / CONFIG, *path.glob("*.safetensors")])


def check_same(here: Mapping[str, Any], there: Sequence[Mapping[str, Any]], do: str) -> None:
    """Compare facts of rank 0 with those of ranks 1, 2, ...; only the names of `here` count.

    `do` is the advice that the error message gives.

    Raises:
        RankLostError: Some differ; the message names them.
    """
    differences = [
        f"{name} is {_shown(facts.get(name))} on rank {rank} and {_shown(value)} on rank 0"
        for rank, facts in enumerate(there, 1)
        for name, value in here.items()
        if facts.get(name) != value
    ]
    if differences:
        raise RankLostError(f"the ranks do not fit together: {'; '.join(differences)}: {do}")


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
