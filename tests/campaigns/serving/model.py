"""The model of a campaign as a folder that mlx-lm's server can load too: the same weights."""

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_flatten

from mlxspec.api import load_target
from mlxspec.bench.peers import mlx_lm_model
from mlxspec.params import Options

_DTYPES = ("float32", "float16", "bfloat16")


@contextmanager
def model_folder(source: str | None) -> Iterator[Path]:
    """Yield a folder: the one that was named, or the default model written as one.

    Args:
        source: A folder; None for the default model, in the dtype that it is computed in here.
    """
    if source is not None:
        yield Path(source)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "SmolLM2-135M-Instruct"
        _write(folder)
        yield folder


def _write(folder: Path) -> None:
    folder.mkdir()
    loaded = load_target(None, Options())
    weights = dict(tree_flatten(mlx_lm_model(loaded.model).parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    config = {name: value for name, value in asdict(loaded.config).items() if value is not None}
    config["eos_token_id"] = list(loaded.tokenizer.eos_token_ids)
    (folder / "config.json").write_text(json.dumps(config, default=list))
    loaded.tokenizer.wrapped.save_pretrained(folder)
    loaded.free()


def dtype_of(folder: Path) -> str:
    """Return the dtype of most weights of a folder; mlx-lm computes in it."""
    counts: Counter[str] = Counter()
    for path in folder.glob("*.safetensors"):
        names = (str(array.dtype).rpartition(".")[2] for array in mx.load(str(path)).values())
        counts.update(name for name in names if name in _DTYPES)
    return counts.most_common(1)[0][0]
