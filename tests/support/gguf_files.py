"""Writes GGUF files byte by byte, only from the specification of the format."""

import struct
from dataclasses import dataclass

import numpy as np

F32, F16, Q4_0, Q4_1, Q5_1, Q8_0, BF16 = 0, 1, 2, 3, 7, 8, 30
Q4_K, Q5_K, Q8_K, IQ2_XXS = 12, 13, 15, 16


@dataclass(frozen=True)
class Value:
    """A metadata value of a chosen type."""

    type_id: int
    raw: bytes


@dataclass(frozen=True)
class Stored:
    """A tensor: its shape, rows first, its type and its bytes."""

    shape: tuple[int, ...]
    type_id: int
    raw: bytes


def floats(array) -> Stored:
    """A float32 tensor."""
    return Stored(np.shape(array), F32, np.asarray(array, "<f4").tobytes())


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def typed(value) -> Value:
    """The usual type of a Python value."""
    match value:
        case Value():
            return value
        case bool():
            return Value(7, struct.pack("<?", value))
        case int():
            return Value(4, struct.pack("<I", value))
        case float():
            return Value(6, struct.pack("<f", value))
        case str():
            return Value(8, string(value))
        case [str(), *_]:
            items = b"".join(map(string, value))
            return Value(9, struct.pack("<IQ", 8, len(value)) + items)
        case [float(), *_]:
            return Value(9, struct.pack(f"<IQ{len(value)}f", 6, len(value), *value))
        case _:
            return Value(9, struct.pack(f"<IQ{len(value)}i", 5, len(value), *value))


def gguf_bytes(metadata, tensors, *, version=3, alignment=32) -> bytes:
    """The bytes of a file with these values and tensors."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, value in metadata.items():
        value = typed(value)
        head += string(key) + struct.pack("<I", value.type_id) + value.raw
    data = b""
    for name, tensor in tensors.items():
        data += b"\0" * (-len(data) % alignment)
        dims = tensor.shape[::-1]
        head += string(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        head += struct.pack("<IQ", tensor.type_id, len(data))
        data += tensor.raw
    return head + b"\0" * (-len(head) % alignment) + data


# ---- a tiny model ------------------------------------------------------------------------------

VOCABULARY = [*("abcdefghijklmnopqrst"), "ab", "Ġ", "Ċ", "<|end|>"]
TOKENIZER = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": VOCABULARY,
    "tokenizer.ggml.token_type": [1] * 23 + [3],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.eos_token_id": 23,
}


def tiny_config(family="llama", **changes):
    """A Hugging Face config of two small layers with grouped heads."""
    return {
        "model_type": family,
        "vocab_size": len(VOCABULARY),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "eos_token_id": 23,
        **changes,
    }


def tiny_metadata(config, **changes):
    """The metadata llama.cpp would write for a Hugging Face config."""
    family = config["model_type"]
    numbers = {
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "block_count": config["num_hidden_layers"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "context_length": config["max_position_embeddings"],
        "rope.freq_base": config["rope_theta"],
    }
    stated = {f"{family}.{key}": value for key, value in numbers.items()}
    return {"general.architecture": family, **stated, **TOKENIZER, **changes}


_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """The name llama.cpp gives a Hugging Face tensor."""
    path, _, kind = name.rpartition(".")
    if path.startswith("model.layers."):
        _, _, layer, part = path.split(".", 3)
        return f"blk.{layer}.{_NAMES[part]}.{kind}"
    return f"{_NAMES[path]}.{kind}"


def as_llama_cpp_stores(name: str, array: np.ndarray, config) -> np.ndarray:
    """Permute the rows of queries and keys as llama.cpp's converter does for some types."""
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    n_heads = heads.get(name.split(".")[-2])
    if config["model_type"] not in ("llama", "granite", "smollm3") or n_heads is None:
        return array
    halves = array.reshape(n_heads, 2, array.shape[0] // n_heads // 2, *array.shape[1:])
    return halves.swapaxes(1, 2).reshape(array.shape)


def random_blocks(n_blocks, n_halves, n_bytes):
    """Blocks of random bytes behind small float16 numbers, and those numbers."""
    draw = np.random.default_rng(1)
    halves = draw.normal(size=(n_blocks, n_halves)).astype("<f2")
    rest = draw.integers(0, 256, (n_blocks, n_bytes), dtype=np.uint8)
    raw = np.concatenate([halves.view(np.uint8), rest], axis=1).tobytes()
    return halves.astype(float).tolist(), rest.tolist(), raw
