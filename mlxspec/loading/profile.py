"""The profile of a model before it is loaded, from its config and headers without weights."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlxspec.device import backend
from mlxspec.errors import UnsupportedModelError, UnsupportedOperationError
from mlxspec.loading.folder import (
    is_model_folder,
    read_config,
    read_json,
    read_tokenizer,
    weight_files,
    with_head,
)
from mlxspec.loading.gguf.config import gguf_config
from mlxspec.loading.gguf.file import decoded_type
from mlxspec.loading.gguf.header import GgufHeader, read_header
from mlxspec.loading.gguf.tokenizer import check_tokenizer_kind, tokenizer_from_gguf
from mlxspec.loading.gguf.triples import GROUP_SIZE, packed_bits
from mlxspec.loading.ports import StatedConfig, is_ours, read_quantization, stated_config
from mlxspec.loading.sizes import num_weights, row_bytes
from mlxspec.loading.tensor_files import StoredTensors, stored_tensors
from mlxspec.models import ModelConfig
from mlxspec.models.weights import Quantization
from mlxspec.tokenizer import Tokenizer

_SIZES = {"float32": 4, "float16": 2, "bfloat16": 2}
_FLOATS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_EIGHT_BITS = ("F8_E4M3", "F8_E5M2")  # become bfloat16
_NOT_TEXT = frozenset(
    {
        *("vision_tower", "vision_model", "visual", "multi_modal_projector", "audio_tower"),
        *("embed_vision", "embed_audio"),
    }
)


@dataclass(frozen=True)
class ModelProfile:
    """What the config and the headers of a model state; sizes are those of arrays of MLX.

    Attributes:
        packing: Type of most of its weights, such as "Q4_1", "4-bit" or "bfloat16".
        weights: The same type as `load_weights` calls it, without the names of GGUF.
        packed_bytes: Bytes of quantised weights, which are packed in integers.
        num_floats: Floating-point numbers, including scales and biases of quantised weights.
        float_bytes: Bytes of these in their stored type.
        dtype: Type of the embedding or of its scales, such as "float16"; "" for other types.
        num_weights: Numbers in all weights once they are unpacked.
        has_chat_template: Whether it can chat.
    """

    config: StatedConfig
    packing: str
    weights: str
    packed_bytes: int
    num_floats: int
    float_bytes: int
    dtype: str
    num_weights: int
    has_chat_template: bool

    @property
    def is_exact(self) -> bool:
        """Whether its memory is known exactly; for a model that mlx-lm runs it is a bound."""
        return isinstance(self.config, ModelConfig)

    def computes_in(self, dtype: str = "auto") -> str:
        """Return the floating-point type of its computation here; "" if that is unknown.

        `dtype` is a word of `options.DTYPES`.
        """
        if dtype != "auto":
            return dtype
        return self.dtype if backend.keeps_weights_as_stored() else "float32"

    def weight_bytes(self, dtype: str = "auto") -> int:
        """Return the bytes of its weights here: dequantised on a CPU, quantised on a GPU.

        With an explicit type, mlx-lm keeps them quantised on a CPU too.
        """
        size = _SIZES.get(self.computes_in(dtype))
        if not backend.keeps_weights_as_stored():
            if self.is_exact or dtype == "auto":
                return self.num_weights * (size or _SIZES["float32"])
        elif dtype == "auto" and not self.is_exact:
            size = None  # mlx-lm leaves every type as it is
        floats = self.float_bytes if size is None else self.num_floats * size
        return self.packed_bytes + floats

    def memory_bytes(self, num_tokens: int, dtype: str = "auto", kv_bits: int | None = None) -> int:
        """Return the bytes of its weights here, plus keys and values of `num_tokens` tokens.

        Keys and values whose size the config does not state are left out. `kv_bits` is 8 or 4, or
        None for keys and values that are not quantised; heads that cannot be quantised raise
        UnsupportedOperationError.
        """
        if not self.config.kv_numbers:
            return self.weight_bytes(dtype)
        size = _SIZES.get(self.computes_in(dtype), _SIZES["float16"])
        try:
            row = row_bytes(self.config, size, kv_bits)
        except UnsupportedOperationError:
            if self.is_exact:
                raise
            # Whether its heads can be quantised is known once it is built.
            row = row_bytes(self.config, size)
        return self.weight_bytes(dtype) + num_tokens * row


def read_profile(path: Path) -> ModelProfile:
    """Return the profile of a model folder or GGUF file."""
    return _of_folder(path) if path.is_dir() else _of_gguf(path)


def tokenizer_of(path: Path, config: StatedConfig) -> Tokenizer:
    """Return the tokenizer of a model folder or GGUF file."""
    if path.is_dir():
        return Tokenizer(read_tokenizer(path), config.eos_token_ids)
    return Tokenizer(tokenizer_from_gguf(path, read_header(path).metadata), config.eos_token_ids)


def _of_folder(folder: Path) -> ModelProfile:
    config = read_config(folder)
    if not is_model_folder(folder):
        kind = stated_config(config).model_type  # raises if that cannot be run
        raise UnsupportedModelError(
            f"{folder} has no tokenizer.json or holds heads ({kind}): it may be a drafter, not a "
            "model; name it with --drafter"
        )
    if is_ours(config):
        quantization = read_quantization(config)
    else:  # of any method, which mlx-lm checks
        stated = (config.get(name) for name in ("quantization", "quantization_config"))
        quantization = next((found for found in stated if isinstance(found, dict)), None)
    stored: StoredTensors = {}
    for path in weight_files(folder):
        stored |= stored_tensors(path)
    settings = folder / "tokenizer_config.json"
    chats = settings.is_file() and read_json(settings).get("chat_template") is not None
    chats = chats or (folder / "chat_template.jinja").is_file()
    return _profile(with_head(config, stored), stored, quantization or {}, "", chats=chats)


def _of_gguf(path: Path) -> ModelProfile:
    header = read_header(path)
    config = gguf_config(path, header, {})
    check_tokenizer_kind(path, header.metadata)
    sizes: Counter[str] = Counter()
    for tensor in header.tensors.values():
        sizes[tensor.type.name] += tensor.n_bytes
    packing = _most(sizes, [name for name in sizes if name not in _FLOATS])
    stored, bits = _as_arrays(header)
    chats = "tokenizer.chat_template" in header.metadata
    return _profile(config, stored, bits, _FLOATS.get(packing, packing), chats=chats)


def _as_arrays(header: GgufHeader) -> tuple[StoredTensors, Quantization]:
    """Return type and bytes of the arrays that a GGUF file becomes, and the bits of packed ones."""
    arrays: StoredTensors = {}
    packed: dict[str, Any] = {}
    for gguf_name, tensor in header.tensors.items():
        name = gguf_name.replace("token_embd.", "model.embed_tokens.")
        num_items = tensor.n_bytes // tensor.type.block_bytes * tensor.type.block_items
        if tensor.type.name in _FLOATS:
            arrays[name] = (tensor.type.name, tensor.n_bytes)
        elif bits := packed_bits(tensor.type.name):
            module = name.removesuffix(".weight")
            packed[module] = {"bits": bits}
            arrays[name] = ("U32", num_items * bits // 8)
            arrays[f"{module}.scales"] = ("F16", num_items // GROUP_SIZE * 4)  # the biases too
        else:
            dtype = decoded_type()
            arrays[name] = (dtype, num_items * _SIZES[_FLOATS[dtype]])
    return arrays, packed


def _profile(
    values: Mapping[str, Any],
    stored: StoredTensors,
    quantization: Quantization,
    packing: str,
    *,
    chats: bool,
) -> ModelProfile:
    """Return the profile; `values` is the content of config.json."""
    types: Counter[str] = Counter()
    for name, (dtype, n_bytes) in stored.items():
        path = name.rpartition(".")[0]
        is_packed = quantization and f"{path}.scales" in stored
        word = f"{_bits(path, quantization)}-bit" if is_packed else _FLOATS.get(dtype, dtype)
        types[word] += n_bytes
    weights = _most(types, [word for word in types if word.endswith("-bit")])
    config = stated_config(values)
    sizes = _sizes(stored, values, quantization, config)
    return ModelProfile(config, packing or weights, weights, *sizes, chats)


def _sizes(
    stored: StoredTensors,
    values: Mapping[str, Any],
    quantization: Quantization,
    config: StatedConfig,
) -> tuple[int, int, int, str, int]:
    """Return the five sizes of a profile.

    Tensors that no text model keeps are left out and all others count. So the sizes of a model that
    mlx-lm runs are exact or slightly too large; a config of ours states the number of its weights.
    """
    own = config if isinstance(config, ModelConfig) else None
    is_tied = own.tie_word_embeddings if own else values.get("tie_word_embeddings") is True
    packed = floats = float_bytes = weights = 0
    dtypes: Counter[str] = Counter()
    for name, (dtype, n_bytes) in stored.items():
        parts = name.split(".")
        is_unused = "inv_freq" in parts or not _NOT_TEXT.isdisjoint(parts)
        if is_unused or (is_tied and "lm_head" in parts):
            continue
        path, _, kind = name.rpartition(".")
        has_scales = f"{path}.scales" in stored
        size = 1 if dtype in _EIGHT_BITS else _SIZES.get(_FLOATS.get(dtype, ""), 0)
        count = n_bytes // size if size else 0
        floats, float_bytes = floats + count, float_bytes + count * max(2, size)
        packed += 0 if size else n_bytes
        dtypes[_FLOATS.get(dtype, "")] += count
        if has_scales and kind not in ("scales", "biases", "bias"):
            weights += 8 * n_bytes // _bits(path, quantization)
        elif kind.endswith("_blocks"):  # of gpt-oss, four bits each
            weights += 2 * n_bytes
        if not has_scales or kind == "bias":
            weights += count
    if own is None:
        return packed, floats, float_bytes, _most(dtypes), weights
    embedding = "model.embed_tokens."
    found = stored.get(f"{embedding}scales", stored.get(f"{embedding}weight", ("", 0)))
    return packed, floats, float_bytes, _FLOATS.get(found[0], ""), num_weights(own)


def _bits(path: str, quantization: Quantization) -> int:
    own = quantization.get(path)
    bits = own.get("bits") if isinstance(own, Mapping) else quantization.get("bits")
    return bits if isinstance(bits, int) and 1 <= bits <= 8 else 4


def _most(sizes: Counter[str], names: Iterable[str] = ()) -> str:
    """Return the type with the most bytes, of the names that are preferred or of all."""
    return max(list(names) or sizes, key=lambda name: sizes[name], default="float32")
