"""The profile of a model before it is loaded, from its config and headers without weights."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

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
from mlxspec.loading.sizes import (
    StoredSizes,
    StoredTensors,
    num_weights,
    row_bytes,
    total_sizes,
)
from mlxspec.models import ModelConfig
from mlxspec.models.weights import Quantization
from mlxspec.tokenizer import Tokenizer

_FLOAT_BYTES, _HALF_BYTES = 4, 2
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_SIZES = {"float32": _FLOAT_BYTES, "float16": _HALF_BYTES, "bfloat16": _HALF_BYTES}
_ITEM_BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True)
class ModelProfile:
    """What the config and the headers of a model state.

    Attributes:
        packing: Type of most of its weights, such as "Q4_1", "4-bit" or "bfloat16".
        weights: The same type as `load_weights` calls it, without the names of GGUF.
        has_chat_template: Whether it can chat.
    """

    config: StatedConfig
    packing: str
    weights: str
    stored: StoredSizes
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
        return self.stored.dtype if backend.keeps_weights_as_stored() else "float32"

    def weight_bytes(self, dtype: str = "auto") -> int:
        """Return the bytes of its weights here: dequantised on a CPU, quantised on a GPU.

        With an explicit type, mlx-lm keeps them quantised on a CPU too.
        """
        size = _SIZES.get(self.computes_in(dtype))
        if not backend.keeps_weights_as_stored():
            if self.is_exact or dtype == "auto":
                return self.stored.num_weights * (size or _FLOAT_BYTES)
        elif dtype == "auto" and not self.is_exact:
            size = None  # mlx-lm leaves every type as it is
        floats = self.stored.float_bytes if size is None else self.stored.num_floats * size
        return self.stored.packed_bytes + floats

    def memory_bytes(self, num_tokens: int, dtype: str = "auto", kv_bits: int | None = None) -> int:
        """Return the bytes of its weights here, plus keys and values of `num_tokens` tokens.

        Keys and values whose size the config does not state are left out. `kv_bits` is 8 or 4, or
        None for keys and values that are not quantised.

        Raises:
            ValueError: `kv_bits` is another number.
            UnsupportedOperationError: Its heads cannot be quantised.
        """
        if not self.config.kv_numbers:
            return self.weight_bytes(dtype)
        size = _SIZES.get(self.computes_in(dtype), _HALF_BYTES)
        try:
            row = row_bytes(self.config, size, kv_bits)
        except UnsupportedOperationError:
            if self.is_exact:
                raise
            # Whether its heads can be quantised is known once it is built.
            row = row_bytes(self.config, size)
        return self.weight_bytes(dtype) + num_tokens * row


def read_profile(path: Path) -> ModelProfile:
    """Return the profile of a model folder or GGUF file.

    Raises:
        UnsupportedModelError: The model cannot be run.
    """
    return _of_folder(path) if path.is_dir() else _of_gguf(path)


def tokenizer_of(path: Path, config: StatedConfig) -> Tokenizer:
    """Return the tokenizer of a model folder or GGUF file.

    Raises:
        UnsupportedModelError: The tokenizer cannot be used.
    """
    if path.is_dir():
        return Tokenizer(read_tokenizer(path), config.eos_token_ids)
    return Tokenizer(tokenizer_from_gguf(path, read_header(path).metadata), config.eos_token_ids)


def _of_folder(folder: Path) -> ModelProfile:
    if not is_model_folder(folder):
        kind = stated_config(read_config(folder)).model_type  # raises if that cannot be run
        raise UnsupportedModelError(
            f"{folder} has no tokenizer.json or holds heads ({kind}): it may be a drafter, not a "
            "model; name it with --drafter"
        )
    config = read_config(folder)
    quantization = read_quantization(config) if is_ours(config) else _any_quantization(config)
    sizes: Counter[str] = Counter()
    everything: StoredTensors = {}
    for path in weight_files(folder):
        stored = _stored_tensors(path)
        everything |= stored
        for name, (dtype, n_bytes) in stored.items():
            sizes[_words_of(name, dtype, stored, quantization)] += n_bytes
    words, model = _most(sizes), stated_config(with_head(config, everything))
    total = _total(everything, model, config, quantization)
    return ModelProfile(model, words, words, total, _has_template(folder))


def _any_quantization(config: Mapping[str, Any]) -> Quantization | None:
    """Return the quantisation that a config states, by any method; mlx-lm checks it."""
    stated = (config.get(name) for name in ("quantization", "quantization_config"))
    return next((found for found in stated if isinstance(found, dict)), None)


def _total(
    stored: StoredTensors,
    config: StatedConfig,
    values: Mapping[str, Any],
    quantization: Quantization | None,
) -> StoredSizes:
    """Return the total sizes of tensors; `values` is the content of config.json."""
    if not isinstance(config, ModelConfig):
        return total_sizes(stored, values, quantization)
    is_tied = {"tie_word_embeddings": config.tie_word_embeddings}
    embedding = "model.embed_tokens."
    found = stored.get(f"{embedding}scales", stored.get(f"{embedding}weight", ("", 0)))
    return replace(
        total_sizes(stored, is_tied, quantization),
        dtype=_DTYPES.get(found[0], ""),
        num_weights=num_weights(config),
    )


def _has_template(folder: Path) -> bool:
    settings = folder / "tokenizer_config.json"
    stated = settings.is_file() and read_json(settings).get("chat_template") is not None
    return stated or (folder / "chat_template.jinja").is_file()


def _of_gguf(path: Path) -> ModelProfile:
    header = read_header(path)
    values = gguf_config(path, header, {})
    config = stated_config(values)
    check_tokenizer_kind(path, header.metadata)
    sizes: Counter[str] = Counter()
    for tensor in header.tensors.values():
        sizes[tensor.type.name] += tensor.n_bytes
    name = _most(sizes, [name for name in sizes if name not in _DTYPES])
    packing = _DTYPES.get(name, name)
    bits = packed_bits(name)
    weights = f"{bits}-bit" if bits else _DTYPES.get(name, _DTYPES[decoded_type()])
    chats = "tokenizer.chat_template" in header.metadata
    stored = _total(_as_arrays(header), config, values, _gguf_quantization(header))
    return ModelProfile(config, packing, weights, stored, chats)


def _gguf_quantization(header: GgufHeader) -> Quantization:
    """Return the bits of each tensor that stays packed."""
    bits = {
        _mlx_name(name): packed_bits(tensor.type.name) for name, tensor in header.tensors.items()
    }
    return {name.removesuffix(".weight"): {"bits": bits} for name, bits in bits.items() if bits}


def _mlx_name(name: str) -> str:
    return name.replace("token_embd.", "model.embed_tokens.")


def _as_arrays(header: GgufHeader) -> StoredTensors:
    """Return type and bytes of the arrays that a GGUF file becomes when it is loaded."""
    arrays: StoredTensors = {}
    for name, tensor in header.tensors.items():
        mlx_name = _mlx_name(name)
        num_items = tensor.n_bytes // tensor.type.block_bytes * tensor.type.block_items
        if tensor.type.name in _DTYPES:
            arrays[mlx_name] = (tensor.type.name, tensor.n_bytes)
            continue
        bits = packed_bits(tensor.type.name)
        if bits is None:
            dtype = decoded_type()
            arrays[mlx_name] = (dtype, num_items * _ITEM_BYTES[dtype])
            continue
        arrays[mlx_name] = ("U32", num_items * bits // 8)
        scales = mlx_name.removesuffix("weight") + "scales"
        arrays[scales] = ("F16", num_items // GROUP_SIZE * 2 * _HALF_BYTES)  # the biases too
    return arrays


def _stored_tensors(path: Path) -> StoredTensors:
    """Return type and bytes of every tensor of a safetensors file, from its header."""
    try:
        with safe_open(path, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {
                name: (
                    found.get_dtype(),
                    prod(found.get_shape()) * _ITEM_BYTES.get(found.get_dtype(), 1),
                )
                for name, found in slices.items()
            }
    except (OSError, SafetensorError) as error:
        raise UnsupportedModelError(
            f"{path} is damaged or cut short ({error}): download it again"
        ) from error


def _words_of(
    name: str, dtype: str, stored: Mapping[str, object], quantization: Quantization | None
) -> str:
    path = name.rpartition(".")[0]
    if quantization is None or f"{path}.scales" not in stored:
        return _DTYPES.get(dtype, dtype)
    own = quantization.get(path)
    chosen = own if isinstance(own, Mapping) else quantization
    return f"{chosen.get('bits', 4)}-bit"


def _most(sizes: Counter[str], names: Iterable[str] = ()) -> str:
    """Return the type with the most bytes, a quantised one if there is any."""
    among = list(names) or [name for name in sizes if name.endswith("-bit")] or list(sizes)
    return max(among, key=lambda name: sizes[name], default="float32")
