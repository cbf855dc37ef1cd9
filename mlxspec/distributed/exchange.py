"""What ranks tell each other: JSON, as sums of bytes over all ranks.

No connection of our own is needed, and `mlx.launch` may have started the ranks. Before they load a
model they compare versions and stored weights.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from statistics import median
from typing import Any

import mlx.core as mx
import numpy as np

from mlxspec.device.turns import device_turn
from mlxspec.errors import MlxspecError, ModelNotFoundError, RankLostError
from mlxspec.loading.fetch.sources import find_source
from mlxspec.loading.folder import CONFIG

_HEAD = 8  # bytes of the size of a message
_FRAME = 2048  # bytes of every message; a longer one takes a second sum
_FACTS = 4096  # bytes of each rank's value in `gathered`
_TIMES = 20  # sums that are timed
_SAMPLES = 64  # samples of a file, besides its head
_SAMPLE = 1 << 12  # bytes of a sample
_FILE_HEAD = 1 << 20  # bytes of its head: names and shapes of the tensors
_MOST = 1000  # characters of a reason
_MISSING = "missing"


def told(value: Any, group: mx.distributed.Group) -> Any:
    """Return rank 0's value on every rank; the values of the others do not count."""
    content = json.dumps(value).encode() if group.rank() == 0 else b""
    frame = len(content).to_bytes(_HEAD, "little") + content
    first = _summed(frame[:_FRAME], _FRAME, group)
    size = _HEAD + int.from_bytes(first[:_HEAD], "little")
    rest = _summed(frame[_FRAME:], size - _FRAME, group) if size > _FRAME else b""
    return json.loads((first + rest)[_HEAD:size])


def gathered(value: Any, group: mx.distributed.Group) -> list[Any]:
    """Return the values of all ranks on every rank; the JSON of each has at most 4,096 bytes."""
    own = bytes(group.rank() * _FACTS) + json.dumps(value).encode().ljust(_FACTS)
    found = _summed(own, group.size() * _FACTS, group)
    return [json.loads(found[at : at + _FACTS]) for at in range(0, len(found), _FACTS)]


def _summed(content: bytes, size: int, group: mx.distributed.Group) -> bytes:
    """Return the sum of what the ranks give, as `size` bytes; only one rank gives each byte."""
    padded = mx.array(np.frombuffer(content.ljust(size, b"\0"), np.uint8))
    with device_turn():
        return np.array(mx.distributed.all_sum(padded, group=group)).tobytes()


def seconds_of_a_sum(numbers: int, group: mx.distributed.Group) -> float:
    """Time sums of this many float32 numbers over all ranks; return the median."""
    seconds = []
    for _ in range(_TIMES):
        start = time.perf_counter()
        mx.eval(mx.distributed.all_sum(mx.ones(numbers), group=group))
        seconds.append(time.perf_counter() - start)
    return median(seconds)


# ---- what has to be the same on all ranks -------------------------------------------------------


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
            digest.update(content.read(_FILE_HEAD))
            for sample in range(_SAMPLES):
                content.seek(size * sample // _SAMPLES)
                digest.update(content.read(_SAMPLE))
    return digest.hexdigest()[:16]
