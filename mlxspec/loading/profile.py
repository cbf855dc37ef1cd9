"""The profile of a model before it is loaded, from its config and headers without weights.

A config is a small text and can state any size. Every weight takes at least one bit, so a config
with more weights than its files have bits is refused.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxspec.decoder.decoder import PREFILL_CHUNK
from mlxspec.device import backend
from mlxspec.device.attention import num_held_scores
from mlxspec.device.packed import Quantization as RowPacking
from mlxspec.errors import UnsupportedModelError, UnsupportedOperationError
from mlxspec.kv.storage import GROWTH
from mlxspec.kv.windows import USUAL_EVICTION
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
from mlxspec.loading.ports import is_ours, read_quantization, stated_config
from mlxspec.loading.tensor_files import StoredTensors, stored_tensors
from mlxspec.models import ModelConfig, TargetConfig
from mlxspec.models.weights import Quantization, packed_words
from mlxspec.text.tokenizer import Tokenizer

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
    """What the config and the headers of a model state; sizes are those of arrays of MLX."""

    config: TargetConfig
    packing: str  # type of most of its weights, such as "Q4_1", "4-bit" or "bfloat16"
    weights: str  # the same type as `load_weights` calls it, without the names of GGUF
    packed_bytes: int  # of quantised weights, which are packed in integers
    num_floats: int  # including scales and biases of quantised weights
    float_bytes: int  # of these in their stored type
    dtype: str  # of the embedding or of its scales, such as "float16"; "" for other types
    num_weights: int  # once they are unpacked
    has_chat_template: bool

    @property
    def is_exact(self) -> bool:
        """Whether its memory is known exactly; for a model that mlx-lm runs it is a bound."""
        return isinstance(self.config, ModelConfig)

    def computes_in(self, dtype: str = "auto") -> str:
        """Return the floating-point type of its computation here; "" if that is unknown."""
        if dtype != "auto":
            return dtype
        return self.dtype if backend.keeps_weights_as_stored() else "float32"

    def weight_bytes(self, dtype: str = "auto") -> int:
        """Return the bytes of its weights here: dequantised on a CPU, quantised on a GPU."""
        size = _SIZES.get(self.computes_in(dtype))
        if not backend.keeps_weights_as_stored():
            if self.is_exact or dtype == "auto":
                return self.num_weights * (size or _SIZES["float32"])
        elif dtype == "auto" and not self.is_exact:
            size = None  # mlx-lm leaves every type as it is
        floats = self.float_bytes if size is None else self.num_floats * size
        return self.packed_bytes + floats

    def memory_bytes(self, num_tokens: int, dtype: str = "auto", kv_bits: int | None = None) -> int:
        """Return the most bytes that it takes here to read a text: weights, rows, and the work.

        Without the rows and the work where the config does not tell the size of rows.
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
            kv_bits, row = None, row_bytes(self.config, size)
        work = work_bytes(self.config, num_tokens, size, kv_bits)
        return self.weight_bytes(dtype) + num_tokens * row + work


def read_profile(path: Path) -> ModelProfile:
    """Return the profile of a model folder or GGUF file."""
    return _of_folder(path) if path.is_dir() else _of_gguf(path)


def tokenizer_of(path: Path, config: TargetConfig) -> Tokenizer:
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
    values: Mapping[str, Any],  # the content of config.json
    stored: StoredTensors,
    quantization: Quantization,
    packing: str,
    *,
    chats: bool,
) -> ModelProfile:
    """Return the profile; tensors that no text model keeps are left out and all others count.

    So the sizes of a model that mlx-lm runs are exact or slightly too large; a config of ours
    states the number of its weights.
    """
    config = stated_config(values)
    own = config if isinstance(config, ModelConfig) else None
    is_tied = own.tie_word_embeddings if own else values.get("tie_word_embeddings") is True
    packed = floats = float_bytes = weights = 0
    dtypes: Counter[str] = Counter()
    for name, (dtype, n_bytes) in stored.items():
        path, _, kind = name.rpartition(".")
        has_scales = f"{path}.scales" in stored
        parts = name.split(".")
        is_unused = "inv_freq" in parts or not _NOT_TEXT.isdisjoint(parts)
        if is_unused or (is_tied and "lm_head" in parts):
            continue
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
    word, dtype = _weight_type(stored, quantization), _most(dtypes)
    if own is not None:
        scales = stored.get("model.embed_tokens.scales")
        dtype, _ = scales or stored.get("model.embed_tokens.weight", ("", 0))
        dtype, weights = _FLOATS.get(dtype, ""), num_weights(own)
    sizes = packed, floats, float_bytes, dtype, weights
    return ModelProfile(config, packing or word, word, *sizes, chats)


def _weight_type(stored: StoredTensors, quantization: Quantization) -> str:
    types: Counter[str] = Counter()
    for name, (dtype, n_bytes) in stored.items():
        path = name.rpartition(".")[0]
        is_packed = quantization and f"{path}.scales" in stored
        word = _packed_words(path, quantization) if is_packed else _FLOATS.get(dtype, dtype)
        types[word] += n_bytes
    return _most(types, [word for word in types if word.endswith("-bit")])


def _packed_words(path: str, quantization: Quantization) -> str:
    mode = _settings(path, quantization).get("mode")
    return packed_words(_bits(path, quantization), mode if isinstance(mode, str) else None)


def _settings(path: str, quantization: Quantization) -> Mapping[str, object]:
    own = quantization.get(path)
    return own if isinstance(own, Mapping) else quantization


def _bits(path: str, quantization: Quantization) -> int:
    bits = _settings(path, quantization).get("bits")
    return bits if isinstance(bits, int) and 1 <= bits <= 8 else 4


def _most(sizes: Counter[str], names: Iterable[str] = ()) -> str:
    """Return the type with the most bytes, of the names that are preferred or of all."""
    return max(list(names) or sizes, key=lambda name: sizes[name], default="float32")


# ---- sizes that a config states --------------------------------------------------------------


def num_weights(config: ModelConfig) -> int:
    """Return the number of weights of a model with this config."""
    width, inner = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    layer = 2 * width * (queries + keys) + 3 * width * inner + 2 * width
    layer += (queries + 2 * keys) * config.attention_bias + width * config.output_bias
    layer += (2 * inner + width) * config.mlp_bias
    tables = config.vocab_size * width * (1 if config.tie_word_embeddings else 2)
    return config.num_hidden_layers * layer + tables + width


def is_possible(config: ModelConfig, stored_bytes: int) -> bool:
    """Return whether `stored_bytes` can hold the weights of a config at one bit or more each."""
    return num_weights(config) <= 8 * stored_bytes


def check_size(config: ModelConfig, tensors: Mapping[str, mx.array]) -> None:
    """Raise UnsupportedModelError if the tensors are too small for the weights of the config."""
    stored = sum(array.nbytes for array in tensors.values())
    if not is_possible(config, stored):
        raise UnsupportedModelError(
            f"config.json states a model of {num_weights(config)} weights, and its files hold "
            f"{stored} bytes: they belong to different models, or are incomplete"
        )


def row_bytes(config: TargetConfig, item_size: int, kv_bits: int | None = None) -> int:
    """Return the bytes of the keys and values of one token in all layers.

    `item_size` is the bytes of one number of the computation. `kv_bits` is None for keys and values
    that are not quantised; heads that cannot be quantised raise UnsupportedOperationError.
    """
    return _bytes(config.kv_numbers, config, item_size, kv_bits)


def cache_bytes(
    config: TargetConfig, num_tokens: int, item_size: int, kv_bits: int | None = None
) -> int:
    """Return the bytes of some tokens' keys and values in a built model; windows keep the last."""
    numbers = 0
    for window, own in zip(config.row_windows, config.row_numbers, strict=True):
        most = num_tokens if window is None else USUAL_EVICTION.most_held(window) + GROWTH
        numbers += own * min(num_tokens, most)
    return _bytes(numbers, config, item_size, kv_bits)


def work_bytes(
    config: TargetConfig,
    num_tokens: int,
    item_size: int,
    kv_bits: int | None = None,
    num_rows: int = PREFILL_CHUNK,
) -> int:
    """Return the most bytes beside weights and rows while a text is read, `num_rows` a forward.

    A chat reads from where its last turn ended, so a whole forward may end with the text. MLX
    allocates results about a layer ahead of the device, and the rows of a forward are held until
    they are committed. So this is what the operations of one layer return, counted on a CPU in
    multiples of its widths.
    """
    rows = min(num_rows, num_tokens)
    experts, inner = config.num_experts_per_tok, config.intermediate_size
    inner = max(inner, experts * (config.moe_intermediate_size or inner))
    queries = config.num_attention_heads * config.head_dim
    numbers = rows * (7 * config.hidden_size + 7 * inner // 2 + 5 * queries)
    numbers += rows * 2 * experts * config.hidden_size  # each expert gets rows of its own
    held = num_held_scores(config.head_dim, by_attend=isinstance(config, ModelConfig))
    numbers += held * rows * num_tokens * config.num_attention_heads
    layer = num_tokens * config.kv_numbers // max(1, config.num_hidden_layers)
    if kv_bits is not None:
        numbers += layer  # unpacked
    return numbers * item_size + _bytes(
        rows * config.kv_numbers + 4 * layer // 3, config, item_size, kv_bits
    )


def _bytes(numbers: int, config: TargetConfig, item_size: int, kv_bits: int | None) -> int:
    if kv_bits is None:
        return numbers * item_size
    groups = numbers // RowPacking.for_head_dim(kv_bits, config.head_dim).group_size
    return numbers * kv_bits // 8 + 2 * groups * item_size
