"""Load a model: find the checkpoint, read it, check it, and build the network."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from os import PathLike
from typing import Any

import mlx.nn as nn
from transformers import PreTrainedTokenizerFast

from mlxspec.decoder.decoder import Decoder
from mlxspec.device import backend, memory
from mlxspec.device.memory import limit_memory
from mlxspec.device.turns import building_turn
from mlxspec.errors import Progress, Say, UnsupportedModelError, UnsupportedOperationError
from mlxspec.kv.cache import Cache
from mlxspec.loading.fetch import default_model
from mlxspec.loading.fetch.sources import Source, find_source
from mlxspec.loading.folder import (
    ALONE,
    UNCHANGED,
    Changes,
    Sharing,
    as_list,
    read_config,
    read_folder,
    read_tokenizer,
    recommended_sampling,
)
from mlxspec.loading.gguf.config import gguf_config
from mlxspec.loading.gguf.file import read_gguf
from mlxspec.loading.gguf.header import GgufHeader, read_header
from mlxspec.loading.heads.file import DrafterFile
from mlxspec.loading.ports import is_ours
from mlxspec.loading.precision import dtype_for, fit_dtype
from mlxspec.loading.profile import check_size
from mlxspec.loading.room import Room, check_room
from mlxspec.loading.tensor_files import read_safetensors
from mlxspec.models import Model, ModelConfig, TargetConfig, TargetModel, build_model
from mlxspec.models.config import FAMILIES
from mlxspec.models.weights import load_weights, words_of_loaded
from mlxspec.params.load import Port
from mlxspec.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class LoadedModel:
    """A model that is ready to run, with its tokenizer."""

    model: TargetModel  # its weights are evaluated
    tokenizer: Tokenizer
    name: str
    weights: str  # their type for display, such as "4-bit" or "float32 from 4-bit"
    revision: str = ""  # commit of a hub model or SHA-256 of the default model; "" if unknown
    sampling: Mapping[str, float] = field(default_factory=dict)  # what its authors recommend
    shared: str = ""  # how several processes share it, for display; "" for a whole model
    make_decoder: Callable[[Any, Cache], Decoder] = Decoder  # with an empty cache
    free: Callable[[], None] = lambda: None  # makes other processes free their parts

    @property
    def config(self) -> TargetConfig:
        return self.model.config

    @property
    def own(self) -> Model:
        """The network, where it is a port of our own; else an UnsupportedOperationError."""
        if isinstance(self.model, Model):
            return self.model
        raise UnsupportedOperationError(
            f"this needs the layers of a model of our own; mlx-lm's code runs {self.name}: choose "
            f"a model of the type {', '.join(FAMILIES)}, loaded with the port 'own' or 'auto'"
        )


def load_model(
    source: str | PathLike[str] | None = None,
    *,
    dtype: str = "auto",
    port: Port = "auto",
    adapter: str | PathLike[str] | None = None,
    changes: Changes = UNCHANGED,
    room: Room | None = None,
    sharing: Sharing = ALONE,
    on_progress: Progress | None = None,
    say: Say = lambda line: None,
) -> LoadedModel:
    """Load a model: with our own port of its type if that can run it, else with mlx-lm's code.

    `source` is a folder, a GGUF file or a hub id; None or "default" is the default model, which is
    downloaded at first use. The `port` "own" or "mlx-lm" allows only that code. `adapter` is a
    folder with adapters (LoRA), which mlx-lm applies. Without `room`, no other model counts.

    A model that does not exist is a ModelNotFoundError, one that cannot be run or does not fit in
    memory an UnsupportedModelError, an impossible change an UnsupportedOperationError.
    """
    backend.check()
    found = find_source(source, on_progress, changes.revision)
    if changes.tokenizer and not found.path.is_dir():
        raise UnsupportedOperationError(
            f"tokenizer_config is not supported for {found.path.name}: a GGUF file describes its "
            "tokenizer as a whole; give a model folder or a hub id"
        )
    with building_turn():  # arrays that stay lazy can be evaluated in any thread
        limit_memory()
        room = replace(room or Room(), ranks=sharing.size)
        check_room(found.path, found.name, dtype, room, say)
        header = None if found.path.is_dir() else read_header(found.path)
        config = gguf_config(found.path, header, {}) if header else read_config(found.path)
        config |= changes.config
        if port == "mlx-lm" or (port == "auto" and (adapter or not is_ours(config))):
            loaded = _load_adapted(
                *(found, header, changes), dtype=dtype, adapter=adapter, sharing=sharing, say=say
            )
        else:
            ModelConfig.from_dict(config)  # refuses an unknown type before weights are read
            loaded = _load_own(found, header, changes, dtype, sharing)
        memory.give_back_memory()  # buffers of the conversion take a fifth of a small model
    words = f"{loaded.weights}, {loaded.shared}" if loaded.shared else loaded.weights
    is_default = found.revision == default_model.SHA256
    sampling = default_model.SAMPLING if is_default else recommended_sampling(found.path, say)
    return replace(loaded, weights=words, sampling=sampling)


def load_draft_model_file(file: DrafterFile, tokenizer: Tokenizer) -> LoadedModel:
    """Return the draft model that was distilled for one target, whose tokenizer is `tokenizer`."""
    config = ModelConfig.from_dict(file.config)
    tensors, _ = read_safetensors(file.path)
    check_size(config, tensors)
    model = build_model(config)
    dtype = dtype_for("auto", config, tensors)
    stored = load_weights(model, tensors, file.config.get("quantization"), dtype)
    fit_dtype(model, tokenizer)
    return LoadedModel(model, tokenizer, file.path.stem, words_of_loaded(stored))


def adapted(module: nn.Module, tokenizer: Tokenizer, *, name: str, say: Say) -> LoadedModel:
    """Return a model that mlx-lm has loaded as a target; its weights stay as they are."""
    mlx_lm = import_module("mlxspec.loading.mlx_lm")
    with building_turn():
        model = mlx_lm.admitted(module, tokenizer, say)
    return LoadedModel(model, tokenizer, name, mlx_lm.stored_words(module))


def wrapped_tokenizer(tokenizer: Any) -> Tokenizer:
    """Return the tokenizer of mlx-lm or transformers as ours, with its end tokens."""
    ends = getattr(tokenizer, "eos_token_ids", ())
    is_fast = isinstance(tokenizer, PreTrainedTokenizerFast)
    inner = tokenizer if is_fast else getattr(tokenizer, "_tokenizer", tokenizer)  # of mlx-lm's
    if not isinstance(inner, PreTrainedTokenizerFast):
        raise UnsupportedModelError(
            f"the tokenizer is a {type(inner).__name__}; give mlx-lm's wrapper or a fast tokenizer "
            "of transformers"
        )
    return Tokenizer(inner, [ends] if isinstance(ends, int) else ends or ())


def _load_adapted(
    found: Source,
    header: GgufHeader | None,
    changes: Changes,
    *,
    dtype: str,
    adapter: str | PathLike[str] | None,
    sharing: Sharing,
    say: Say,
) -> LoadedModel:
    mlx_lm = import_module("mlxspec.loading.mlx_lm")  # our own models do not need mlx-lm
    if header is None:
        wrapped, config = read_tokenizer(found.path, changes), read_config(found.path, changes)
        module = mlx_lm.load_module(found.path, changes.config)
    else:
        checkpoint = read_gguf(found.path, header, changes.config)
        wrapped, config = checkpoint.tokenizer, checkpoint.config
        module = mlx_lm.build_module(checkpoint)
        del checkpoint  # else the stored and the converted weights are in memory together
    module = mlx_lm.with_adapter(module, adapter)
    weights = words_of_loaded(mlx_lm.stored_words(module), dtype)
    module, shared = mlx_lm.evaluated(module, dtype, sharing)
    tokenizer = Tokenizer(wrapped, as_list(config.get("eos_token_id")))
    memory.give_back_memory()  # before the examination takes some
    model = mlx_lm.admitted(module, tokenizer, say, found.path, sharing=sharing, shared=shared)
    return LoadedModel(model, tokenizer, found.name, weights, found.revision, shared=shared)


def _load_own(
    found: Source, header: GgufHeader | None, changes: Changes, dtype: str, sharing: Sharing
) -> LoadedModel:
    if header is None:
        checkpoint = read_folder(found.path, changes)
    else:
        checkpoint = read_gguf(found.path, header, changes.config)
    config = ModelConfig.from_dict(checkpoint.config)
    tokenizer = Tokenizer(checkpoint.tokenizer, config.eos_token_ids)
    tensors, quantization = checkpoint.tensors, checkpoint.quantization
    check_size(config, tensors)
    model = build_model(config)
    shared: list[str] = []
    computed = dtype_for(dtype, config, tensors)
    stored = load_weights(
        model, tensors, quantization, computed, lambda: shared.append(sharing.cut(model))
    )
    del checkpoint, tensors  # else the stored and the converted weights are in memory together
    if dtype == "auto":
        fit_dtype(model, tokenizer)
    weights = words_of_loaded(stored, dtype)
    return LoadedModel(model, tokenizer, found.name, weights, found.revision, shared=shared[0])
