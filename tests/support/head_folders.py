"""Writes tiny trained heads in every known layout, PyTorch's files included.

Each head has random weights with normalised names. A layout is then a renaming, written here in
the direction opposite to the loader's.
"""

import json
import struct
import zipfile

import mlx.core as mx
import numpy as np

from mlxspec.drafting.heads import HEADS as NETWORKS
from mlxspec.loading import load_head
from mlxspec.models import ModelConfig

D, V, INNER, HEADS, KV_HEADS, HEAD_DIM = 8, 20, 10, 4, 2, 6
LAYER = {
    "hidden_size": D,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 5000.0,
    "vocab_size": V,
}
TOKENS = (1, 3, 4, 8, 9, 19)  # a reduced vocabulary


def tiny_target(**changes):
    """The config of the target that all heads here are made for: eight layers."""
    return ModelConfig.from_dict(
        {**LAYER, "model_type": "llama", "num_hidden_layers": 8, "head_dim": 2, **changes}
    )


def load_checked(source, target):
    """A head that its network accepts."""
    head = load_head(source, target)
    NETWORKS[head.kind][0].of_head(head, target, mx.float32)
    return head


def draw(shapes, dtype=mx.float32):
    """Random arrays of the given shapes by name."""
    random = np.random.default_rng(3)
    return {
        name: mx.array(random.normal(size=shape).astype("f4")).astype(dtype)
        for name, shape in shapes.items()
    }


# ---- heads under the loader's names ---------------------------------------------------------


def medusa(num_heads=3, num_layers=1, rows=V, **options):
    """Medusa heads; without rows they have no output layers."""
    shapes = {}
    for head in range(num_heads):
        for layer in range(num_layers):
            shapes[f"heads.{head}.blocks.{layer}.weight"] = (D, D)
            shapes[f"heads.{head}.blocks.{layer}.bias"] = (D,)
        if rows:
            shapes[f"heads.{head}.out.weight"] = (rows, D)
    return draw(shapes, **options)


def layer_shapes(layer, read):
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    return {
        f"{layer}.self_attn.q_proj.weight": (queries, read),
        f"{layer}.self_attn.k_proj.weight": (keys, read),
        f"{layer}.self_attn.v_proj.weight": (keys, read),
        f"{layer}.self_attn.o_proj.weight": (D, queries),
        f"{layer}.mlp.gate_proj.weight": (INNER, D),
        f"{layer}.mlp.up_proj.weight": (INNER, D),
        f"{layer}.mlp.down_proj.weight": (D, INNER),
        f"{layer}.post_attention_layernorm.weight": (D,),
    }


def eagle(*, fc_bias=False, qkv_bias=False, embedding=True, norms=False, rows=0, **options):
    """An EAGLE-1 head."""
    shapes = {"fc.weight": (D, 2 * D), **layer_shapes("layers.0", D)}
    if fc_bias:
        shapes["fc.bias"] = (D,)
    if qkv_bias:
        shapes |= {
            f"layers.0.self_attn.{name}_proj.bias": (size * HEAD_DIM,)
            for name, size in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))
        }
    if embedding:
        shapes["embed_tokens.weight"] = (V, D)
    if norms:
        names = ("embedding_layernorm", "pre_lm_head_layernorm", "layers.0.input_layernorm")
        shapes |= {f"{name}.weight": (D,) for name in names}
    if rows:
        shapes["lm_head.weight"] = (rows, D)
    return draw(shapes, **options)


def eagle3(*, rows=6, width=D, embedding=False, extra=(), **options):
    """An EAGLE-3 head; `extra` names norms before `fc`, `width` is the target's."""
    shapes = {
        "fc.weight": (D, 3 * width),
        **layer_shapes("layer", 2 * D),
        "layer.input_layernorm.weight": (D,),
        "layer.hidden_norm.weight": (D,),
        "norm.weight": (D,),
    }
    if rows:
        shapes["lm_head.weight"] = (rows, D)
    if embedding:
        shapes["embed_tokens.weight"] = (V, D)
    if "input_norm" in extra:
        shapes["input_norm.weight"] = (3 * width,)
    if "fc_norm" in extra:
        shapes |= {f"fc_norm.{tap}.weight": (width,) for tap in range(3)}
    return draw(shapes, **options)


def maps(tokens=TOKENS):
    """The two maps of an EAGLE-3 checkpoint with a reduced vocabulary."""
    reached = np.isin(np.arange(V), tokens)
    offsets = np.array(tokens) - np.arange(len(tokens))
    return {"d2t": mx.array(offsets.astype("i8")), "t2d": mx.array(reached)}


# ---- layouts --------------------------------------------------------------------------------


def renamed(tensors, *replacements, prefix=""):
    """The tensors with parts of their names replaced, in the order given."""
    result = {}
    for name, array in tensors.items():
        for old, new in replacements:
            name = name.replace(old, new)
        result[prefix + name] = array
    return result


def authors_medusa(tensors, num_layers=1, prefix=""):
    """Medusa as its authors write it: `0.0.linear.weight`, `0.1.weight`."""
    result = {}
    for name, array in tensors.items():
        _, head, *rest = name.split(".")
        if rest[0] == "blocks":
            result[f"{prefix}{head}.{rest[1]}.linear.{rest[2]}"] = array
        else:
            result[f"{prefix}{head}.{num_layers}.weight"] = array
    return result


def vllm_medusa(tensors, prefix=""):
    """Medusa as vLLM writes it: `blocks.0.layers.0.weight`, `lm_heads.0.weight`."""
    result = {}
    for name, array in tensors.items():
        _, head, *rest = name.split(".")
        if rest[0] == "blocks":
            result[f"{prefix}blocks.{head}.layers.{rest[1]}.{rest[2]}"] = array
        else:
            result[f"{prefix}lm_heads.{head}.weight"] = array
    return result


# ---- files ----------------------------------------------------------------------------------


def save_json(path, content):
    path.write_text(json.dumps(content))


def save_head_folder(folder, tensors, config=None, file="model.safetensors"):
    """Write a folder with one weight file, of the kind that its ending says."""
    folder.mkdir(parents=True, exist_ok=True)
    if config is not None:
        save_json(folder / "config.json", config)
    save_file(folder / file, tensors)
    return folder


def save_sharded(folder, tensors, config, ending):
    """Write a folder with two shards and their index."""
    folder.mkdir()
    save_json(folder / "config.json", config)
    stem = {"bin": "pytorch_model", "safetensors": "model"}[ending]
    weight_map, names = {}, sorted(tensors)
    for index in range(2):
        file = f"{stem}-{index + 1:05}-of-00002.{ending}"
        part = {name: tensors[name] for name in names[index::2]}
        save_file(folder / file, part)
        weight_map |= dict.fromkeys(part, file)
    save_json(folder / f"{stem}.{ending}.index.json", {"weight_map": weight_map})
    return folder


def save_file(path, tensors):
    if path.suffix == ".safetensors":
        mx.save_safetensors(str(path), tensors)
    else:
        save_torch(path, tensors)


STORAGES = {
    mx.float32: "FloatStorage",
    mx.float16: "HalfStorage",
    mx.bfloat16: "BFloat16Storage",
    mx.int64: "LongStorage",
    mx.int32: "IntStorage",
    mx.int8: "CharStorage",
    mx.uint8: "ByteStorage",
    mx.bool_: "BoolStorage",
}
ORDERED_DICT = b"ccollections\nOrderedDict\n)R"
REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"


def text(value):
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def number(value):
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def numbers(values):
    return b"(" + b"".join(map(number, values)) + b"t"


def storage(kind, key, num_items):
    what = text("storage") + b"ctorch\n" + kind.encode() + b"\n" + text(key) + text("cpu")
    return b"((" + what + number(num_items) + b"tQ"  # inside the arguments of a rebuild


def tensor(kind, key, num_items, shape, strides, offset=0):
    """The instructions that rebuild a tensor."""
    layout = number(offset) + numbers(shape) + numbers(strides)
    return REBUILD + storage(kind, key, num_items) + layout + b"\x89" + ORDERED_DICT + b"tR"


def state_dict(items):
    """A pickle of an ordered dict with the given instructions for each value."""
    pairs = b"".join(text(name) + value for name, value in items.items())
    metadata = b"}" + text("_metadata") + ORDERED_DICT + b"sb"
    return b"\x80\x02" + ORDERED_DICT + b"(" + pairs + b"u" + metadata + b"."


def save_torch(path, tensors):
    """Write tensors as `torch.save` does."""
    records, items = {}, {}
    for index, (name, array) in enumerate(tensors.items()):
        kind, key = STORAGES[array.dtype], str(index)
        plain = array.view(mx.uint16) if array.dtype == mx.bfloat16 else array
        records[f"data/{key}"] = np.array(plain).tobytes()
        strides = [int(np.prod(array.shape[axis + 1 :])) for axis in range(array.ndim)]
        items[name] = tensor(kind, key, array.size, array.shape, strides)
    save_archive(path, {"data.pkl": state_dict(items), "byteorder": b"little", **records})


def save_archive(path, records, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in records.items():
            archive.writestr(f"archive/{name}", data)
    return path
