"""A draft model in one file: config and weights; the tokenizer is that of its target.

A small language model that was distilled for one target needs nothing else, so its file has the
format of the other trained drafters (see `shipped.py`).
"""

from os import PathLike, fspath
from pathlib import Path

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading import LoadedModel
from mlxspec.loading.heads.file import read_safetensors
from mlxspec.loading.precision import dtype_for, widen
from mlxspec.loading.shipped import read_drafter_file
from mlxspec.loading.sizes import check_size
from mlxspec.models import ModelConfig, build_model
from mlxspec.models.weights import load_weights, words_of_loaded
from mlxspec.text.tokenizer import Tokenizer

KIND = "draft-model"


def load_draft_model_file(path: str | PathLike[str], tokenizer: Tokenizer) -> LoadedModel:
    """Return the draft model of a file, ready to run; the tokenizer is the target's.

    Raises:
        UnsupportedModelError: The file is no draft model, is damaged, or its weights do not fit its
            config.
    """
    file = read_drafter_file(Path(path))
    if file is None or file.kind != KIND:
        found = "no drafter of mlxspec" if file is None else f"a drafter of the kind {file.kind!r}"
        raise UnsupportedModelError(
            f"{fspath(path)} holds {found}, not a draft model: give a file made by "
            f"`mlxspec train {KIND}`, a model folder or a GGUF file"
        )
    config = ModelConfig.from_dict(file.config)
    tensors, _ = read_safetensors(Path(path))
    check_size(config, tensors)
    model = build_model(config)
    dtype = dtype_for("auto", config, tensors)
    stored = load_weights(model, tensors, file.config.get("quantization"), dtype)
    widen(model, tokenizer)
    return LoadedModel(model, config, tokenizer, Path(path).stem, words_of_loaded(stored))
