"""Read a GGUF file as a checkpoint with the names and the row order of Hugging Face.

llama.cpp permutes the rows of the query and key projections of some architectures for interleaved
rotary embeddings. This module reverses the permutation, also for quantised triples, because all
parts of a triple have the same rows.

Types that are MLX's affine format stay packed (`triples.py`). The package `gguf` decodes all
others. Both go in chunks, because intermediate results are many times as large as the blocks.
(MLX's own GGUF reader is not used: it opens the file for writing and does not check its header.)
"""

from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from mlxspec.device import backend
from mlxspec.loading.folder import Checkpoint
from mlxspec.loading.gguf.architectures import (
    ARCHITECTURES,
    LONG_FACTORS,
    SHORT_FACTORS,
    Factors,
    hf_name,
)
from mlxspec.loading.gguf.config import ROPE_FACTORS, check_architecture, gguf_config
from mlxspec.loading.gguf.header import GgufHeader, TensorInfo, read_header
from mlxspec.loading.gguf.tokenizer import tokenizer_from_gguf
from mlxspec.loading.gguf.triples import GROUP_SIZE, READERS, Bytes, packed_bits

_CHUNK_ITEMS = 1 << 18  # the fastest of 2^15, 2^18 and 2^21: the work fits a level-2 cache
_Part = TypeVar("_Part")
_PLAIN = {"F32": "<f4", "F16": "<f2"}


def read_gguf(
    path: Path, header: GgufHeader | None = None, changes: Mapping[str, Any] = MappingProxyType({})
) -> Checkpoint:
    """Return the checkpoint in a GGUF file; `changes` replace entries of its config."""
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
    return Checkpoint({**config, **changes}, tensors, tokenizer, _quantization(tensors))


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
    own = {path: {"group_size": GROUP_SIZE, "bits": width} for path, width in bits.items()}
    others = {path: stated for path, stated in own.items() if bits[path] != most}
    return {"group_size": GROUP_SIZE, "bits": most, **others}


def decoded_type() -> str:
    """Return the type, F16 or F32, of weights that MLX cannot keep in the format of the file."""
    return "F16" if backend.keeps_weights_as_stored() else "F32"


def read_tensors(infos: dict[str, TensorInfo]) -> dict[str, mx.array]:
    """Return the arrays by name; `x.weight` of a packed type also gives `x.scales`, `x.biases`."""
    files = {path: np.memmap(path, np.uint8, mode="r") for path in {i.path for i in infos.values()}}
    arrays: dict[str, mx.array] = {}
    for name, info in infos.items():
        raw = files[info.path][info.offset : info.offset + info.n_bytes]
        if packed_bits(info.type.name) is None:
            arrays[name] = _plain(raw, info)
            continue
        parts = _in_chunks(READERS[info.type.name], raw, info)
        quants, scales, biases = (np.concatenate(part) for part in zip(*parts, strict=True))
        prefix, rows = name.removesuffix("weight"), info.shape[:-1]
        arrays[name] = mx.array(quants.reshape(*rows, -1).view(np.uint32))
        arrays[prefix + "scales"] = mx.array(scales.reshape(*rows, -1))
        arrays[prefix + "biases"] = mx.array(biases.reshape(*rows, -1))
    return arrays


def _plain(raw: Bytes, info: TensorInfo) -> mx.array:
    if info.type.name == "BF16":  # NumPy has no such type
        return mx.array(raw.view("<u2").reshape(info.shape)).view(mx.bfloat16)
    if info.type.name in _PLAIN:
        return mx.array(raw.view(_PLAIN[info.type.name]).reshape(info.shape))
    kind, dtype = GGMLQuantizationType[info.type.name], _PLAIN[decoded_type()]

    def decode(blocks: Bytes) -> npt.NDArray[np.floating]:
        numbers: npt.NDArray[np.float32] = dequantize(blocks.reshape(1, -1), kind)[0]
        return numbers.astype(dtype)

    return mx.array(np.concatenate(_in_chunks(decode, raw, info)).reshape(info.shape))


def _in_chunks(convert: Callable[[Bytes], _Part], raw: Bytes, info: TensorInfo) -> list[_Part]:
    """Convert blocks in chunks on all cores: NumPy frees the interpreter's lock."""
    blocks = raw.reshape(-1, info.type.block_bytes)
    size = max(1, _CHUNK_ITEMS // info.type.block_items)

    def one(start: int) -> _Part:
        with np.errstate(all="ignore"):  # a damaged scale gives infinities, as in a float tensor
            return convert(blocks[start : start + size])

    with ThreadPoolExecutor() as pool:
        return list(pool.map(one, range(0, len(blocks), size)))
