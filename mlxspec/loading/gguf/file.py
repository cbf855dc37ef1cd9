"""Read a GGUF file as a checkpoint with the names and the row order of Hugging Face.

llama.cpp permutes the rows of the query and key projections of some architectures for interleaved
rotary embeddings. This module reverses the permutation, also for quantised triples, because all
parts of a triple have the same rows.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from mlxspec.loading.checkpoint import Checkpoint
from mlxspec.loading.gguf.architectures import (
    ARCHITECTURES,
    LONG_FACTORS,
    SHORT_FACTORS,
    Factors,
)
from mlxspec.loading.gguf.config import ROPE_FACTORS, check_architecture, gguf_config
from mlxspec.loading.gguf.header import GgufHeader, read_header
from mlxspec.loading.gguf.names import hf_name
from mlxspec.loading.gguf.tensors import read_tensors
from mlxspec.loading.gguf.tokenizer import tokenizer_from_gguf
from mlxspec.loading.gguf.triples import GROUP_SIZE


def read_gguf(path: Path, header: GgufHeader | None = None) -> Checkpoint:
    """Return the checkpoint in a GGUF file; a header that was read before is not read again.

    Raises:
        UnsupportedModelError: The file is damaged, or of an unsupported family or tensor type.
    """
    header = header or read_header(path)
    architecture = ARCHITECTURES[check_architecture(path, header)]
    tokenizer = tokenizer_from_gguf(path, header.metadata)
    factors = _rope_factors(header)
    config = gguf_config(path, header, factors)
    infos = {  # decoding can take a minute, so all names are checked first
        hf_name(path, name, architecture.names): info
        for name, info in header.tensors.items()
        if name not in factors
    }
    tensors = read_tensors(infos)
    if architecture.is_permuted:
        _unpermute(tensors, "q_proj", config["num_attention_heads"], config["head_dim"])
        _unpermute(tensors, "k_proj", config["num_key_value_heads"], config["head_dim"])
    for name, array in tensors.items():
        if architecture.adds_one and name.endswith("norm.weight"):
            tensors[name] = array - 1
        elif name.endswith("shared_expert_gate.weight"):  # some files hold its one row as a vector
            tensors[name] = array.reshape(1, -1)
    return Checkpoint(config, tensors, tokenizer, _quantization(tensors))


def _rope_factors(header: GgufHeader) -> Factors:
    names = (ROPE_FACTORS, LONG_FACTORS, SHORT_FACTORS)
    infos = {name: header.tensors[name] for name in names if name in header.tensors}
    return {
        name: np.ravel(array.astype(mx.float32)).tolist()
        for name, array in read_tensors(infos).items()
        if name in infos  # a packed type has scales too
    }


def _unpermute(tensors: dict[str, mx.array], projection: str, heads: int, head_dim: int) -> None:
    """Put the rows of one projection into the order of half-split rotary embeddings."""
    for name, array in tensors.items():
        # A tensor of another shape is not changed; loading the weights reports it by name.
        if name.split(".")[-2] == projection and array.shape[0] == heads * head_dim:
            pairs = array.reshape(heads, head_dim // 2, 2, *array.shape[1:])
            tensors[name] = pairs.swapaxes(1, 2).reshape(array.shape)


def _quantization(tensors: dict[str, mx.array]) -> dict[str, Any] | None:
    """Return the settings of MLX's quantised triples, with exceptions for modules of other bits."""
    bits: dict[str, int] = {}
    for name, scales in tensors.items():
        path = name.removesuffix(".scales")
        if path != name and f"{path}.weight" in tensors:
            columns = scales.shape[-1] * GROUP_SIZE
            bits[path] = tensors[f"{path}.weight"].shape[-1] * 32 // columns
    if not bits:
        return None
    most = Counter(bits.values()).most_common(1)[0][0]
    others = {
        path: {"group_size": GROUP_SIZE, "bits": width}
        for path, width in bits.items()
        if width != most
    }
    return {"group_size": GROUP_SIZE, "bits": most, **others}
