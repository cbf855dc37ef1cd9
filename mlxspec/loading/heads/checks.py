"""Check a trained head against its target: names and shapes of tensors, token ids, config.

The tables hold the shape of every tensor of a kind, by the sizes of the target; a name that ends in
"?" is optional. They are also the list of normalised names. Quantised tensors follow MLX:
`X.weight`, `X.scales`, `X.biases` by `config["quantization"]`. A head for another target is refused
by the first tensor that does not fit. The networks use the config without further checks.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.heads.file import HeadCheckpoint
from mlxspec.models import TargetConfig
from mlxspec.models.fields import Fields

Shape = tuple[int, ...]
Tensors = Mapping[str, mx.array]
_NAMED = 4  # tensors that a message names; it counts the others
_IDS = ("target_ids", "token_map")


def check_head(head: HeadCheckpoint, target: TargetConfig, place: str) -> HeadCheckpoint:
    """Return the head with the tensors of its kind; the names of others are listed as unknown.

    Every message starts with `place`, the path of the head.
    """
    fields = Fields(head.config, f"{place}, config")
    wanted = _TABLES[head.kind](fields, head.tensors, target)
    if missing := sorted({name for name in wanted if name[-1] != "?"} - head.tensors.keys()):
        rest = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        raise UnsupportedModelError(
            f"{place} lacks {', '.join(missing[:_NAMED])}{rest}: the {head.kind} head is "
            "incomplete, or of a layout that is not known"
        )
    shapes = {name.removesuffix("?"): shape for name, shape in wanted.items()}
    quantised = [name for name in shapes if _with_ending(name, "scales") in head.tensors]
    for name in quantised:
        shapes |= _packed_shapes(name, shapes[name], fields)
    found = {name: head.tensors[name] for name in shapes if name in head.tensors}
    for name, array in found.items():
        what = f"{place}: {head.origins.get(name, name)!r}"
        if array.shape != shapes[name]:
            raise UnsupportedModelError(
                f"{what} has the shape {array.shape}, not {shapes[name]}: the head was made for "
                "another target, or its config is wrong"
            )
        if name in _IDS:
            found[name] = token_ids(array, what, target.vocab_size)
        elif name not in quantised and not mx.issubdtype(array.dtype, mx.floating):
            raise UnsupportedModelError(f"{what} is {array.dtype}; it must be floating-point")
    _check_config(head, target, fields)
    unknown = (head.origins.get(name, name) for name in head.tensors if name not in found)
    return replace(head, tensors=found, unknown=(*head.unknown, *unknown))


def token_ids(
    array: mx.array, what: str, vocab_size: int, *, are_offsets: bool = False
) -> mx.array:
    """Return (n,) int32 ids of the target.

    `array` holds (n,) integers: the ids, or with `are_offsets` their offsets from 0, 1, ... Every
    message starts with `what`, the name of the array.
    """
    if array.ndim != 1 or not mx.issubdtype(array.dtype, mx.integer):
        raise UnsupportedModelError(
            f"{what} is {array.dtype} of shape {array.shape}; a list of whole numbers is needed"
        )
    ids = np.array(array).astype(np.int64) + (np.arange(array.size) if are_offsets else 0)
    beyond = ids[(ids < 0) | (ids >= vocab_size)]
    if len(np.unique(ids)) < len(ids):  # its outputs would be drafted as two children
        raise UnsupportedModelError(f"{what} leads to a token twice; each may stand there once")
    if len(beyond):
        raise UnsupportedModelError(
            f"{what} leads to token {beyond[0]}; the target has tokens 0 to {vocab_size - 1}: the "
            "head was made for another target"
        )
    return mx.array(ids.astype(np.int32))


def are_layers(capture: Any, num_layers: int) -> bool:
    """Return whether this is a list of layers; the number of layers is the last output."""
    return isinstance(capture, list) and all(
        type(layer) is int and 0 <= layer <= num_layers for layer in capture
    )


# ---- tables of tensors ---------------------------------------------------------------------


def _medusa(fields: Fields, tensors: Tensors, target: TargetConfig) -> dict[str, Shape]:
    D, rows = target.hidden_size, _length(tensors, "token_map") or target.vocab_size
    has_outputs = any(name.endswith(".out.weight") for name in tensors)
    num_layers = _count(fields, "num_layers", tensors, r"heads\.0\.blocks\.(\d+)\.")
    num_heads = _count(fields, "num_heads", tensors, r"heads\.(\d+)\.")
    if num_heads * num_layers > len(tensors):
        raise fields.refusal("num_layers", f"fewer: {num_heads} heads have {len(tensors)} tensors")
    wanted: dict[str, Shape] = {"token_map?": (rows,)}
    for head in range(num_heads):
        for layer in range(num_layers):
            wanted[f"heads.{head}.blocks.{layer}.weight"] = (D, D)
            wanted[f"heads.{head}.blocks.{layer}.bias?"] = (D,)
        wanted[_name(f"heads.{head}.out.weight", has_outputs)] = (rows, D)
    return wanted


def _eagle(fields: Fields, tensors: Tensors, target: TargetConfig) -> dict[str, Shape]:
    D, rows = target.hidden_size, _length(tensors, "target_ids") or target.vocab_size
    has_norms = fields.flag("input_norm", False)
    wanted: dict[str, Shape] = {
        "fc.weight": (D, 2 * D),
        "fc.bias?": (D,),
        "embed_tokens.weight?": (target.vocab_size, D),
        "lm_head.weight?": (rows, D),
        "target_ids?": (rows,),
    }
    for layer in range(_count(fields, "num_layers", tensors, r"layers\.(\d+)\.")):
        wanted |= _decoder_layer(f"layers.{layer}.", D, D, fields, tensors)
        if layer or has_norms:
            wanted[f"layers.{layer}.input_layernorm.weight"] = (D,)
    if has_norms:
        wanted |= {"embedding_layernorm.weight": (D,), "pre_lm_head_layernorm.weight": (D,)}
    return wanted


def _eagle3(fields: Fields, tensors: Tensors, target: TargetConfig) -> dict[str, Shape]:
    D, rows = fields.integer("hidden_size"), fields.integer("draft_vocab_size")
    capture = fields.get("capture")
    if not are_layers(capture, target.num_hidden_layers):
        raise fields.refusal("capture", f"layers 0 to {target.num_hidden_layers} of the target")
    taps, fused = range(len(capture)), len(capture) * target.hidden_size
    # then the target's embedding and head do not fit; the check of `fc` reports a wrong target
    is_other_width = fields.integer("target_hidden_size") != D
    wanted: dict[str, Shape] = {
        "fc.weight": (D, fused),
        "fc.bias?": (D,),
        **_decoder_layer("layer.", D, 2 * D, fields, tensors),
        "layer.input_layernorm.weight": (D,),
        "layer.hidden_norm.weight": (D,),
        "norm.weight": (D,),
        _name("embed_tokens.weight", is_other_width): (target.vocab_size, D),
        _name("lm_head.weight", is_other_width): (rows, D),
        _name("target_ids", rows != target.vocab_size): (rows,),
    }
    if fields.flag("norm_before_fc", False):
        wanted["input_norm.weight"] = (fused,)
    if fields.flag("fc_norm", False):
        wanted |= {f"fc_norm.{tap}.weight": (target.hidden_size,) for tap in taps}
    return wanted


def _exit(fields: Fields, tensors: Tensors, target: TargetConfig) -> dict[str, Shape]:
    D, inner = target.hidden_size, fields.integer("intermediate_size")
    if not 0 < fields.integer("layer") < target.num_hidden_layers:
        raise fields.refusal("layer", f"1 to {target.num_hidden_layers - 1}: a layer to stop at")
    wanted: dict[str, Shape] = {
        "input_norm.weight": (D,),
        "fc.weight": (D, D),
        "fc.bias": (D,),
        "norm.weight": (D,),
        "target_ids?": (_length(tensors, "target_ids"),),
    }
    for block in range(_count(fields, "num_blocks", tensors, r"blocks\.(\d+)\.")):
        wanted |= {
            f"blocks.{block}.norm.weight": (D,),
            f"blocks.{block}.gate_proj.weight": (inner, D),
            f"blocks.{block}.up_proj.weight": (inner, D),
            f"blocks.{block}.down_proj.weight": (D, inner),
        }
    return wanted


def _decoder_layer(
    layer: str, D: int, read: int, fields: Fields, tensors: Tensors
) -> dict[str, Shape]:
    """Return the shapes of attention, whose inputs have width `read`, of the MLP and its norm."""
    head_dim, inner = fields.integer("head_dim"), fields.integer("intermediate_size")
    queries = fields.integer("num_attention_heads") * head_dim
    keys = fields.integer("num_key_value_heads") * head_dim
    attention, mlp = f"{layer}self_attn.", f"{layer}mlp."
    wanted: dict[str, Shape] = {
        f"{layer}post_attention_layernorm.weight": (D,),
        f"{attention}o_proj.weight": (D, queries),
        f"{attention}o_proj.bias?": (D,),
    }
    for part, rows, columns in (
        (f"{attention}q_proj", queries, read),
        (f"{attention}k_proj", keys, read),
        (f"{attention}v_proj", keys, read),
        (f"{mlp}gate_proj", inner, D),
        (f"{mlp}up_proj", inner, D),
        (f"{mlp}down_proj", D, inner),
    ):
        first = f"{attention}q_proj.bias" if attention in part else f"{mlp}gate_proj.bias"
        wanted[f"{part}.weight"] = (rows, columns)
        wanted[_name(f"{part}.bias", first in tensors)] = (rows,)
    return wanted


_TABLES: dict[str, Callable[[Fields, Tensors, TargetConfig], dict[str, Shape]]] = {
    "medusa": _medusa,
    "eagle": _eagle,
    "eagle3": _eagle3,
    "exit": _exit,
}


def _name(name: str, is_required: bool) -> str:
    return name if is_required else f"{name}?"


def _count(fields: Fields, key: str, tensors: Tensors, pattern: str) -> int:
    """Return a number of modules: the stated one, else the count by names of tensors."""
    found = {match[1] for match in (re.match(pattern, name) for name in tensors) if match}
    number = fields.integer(key, len(found), minimum=0)
    if number > len(tensors):
        raise fields.refusal(key, f"at most {len(tensors)}, the number of its tensors")
    return number


def _length(tensors: Tensors, name: str) -> int:
    return tensors[name].size if name in tensors else 0


def _packed_shapes(name: str, shape: Shape, fields: Fields) -> dict[str, Shape]:
    """Return the shapes of a quantised weight, its scales and its biases; {} for a vector."""
    if len(shape) != 2:
        return {}
    settings, path = fields.section("quantization"), name.removesuffix(".weight")
    if settings.get(path) is not None:
        settings = settings.section(path)
    rows, columns = shape
    groups = (rows, columns // settings.integer("group_size"))
    return {
        name: (rows, columns * settings.integer("bits") // 32),
        _with_ending(name, "scales"): groups,
        _with_ending(name, "biases"): groups,
    }


def _with_ending(name: str, ending: str) -> str:
    return f"{name.rpartition('.')[0]}.{ending}"


# ---- the config ----------------------------------------------------------------------------


def _check_config(head: HeadCheckpoint, target: TargetConfig, fields: Fields) -> None:
    """Check the values that no shape of a tensor confirms."""
    width = "target_hidden_size" if head.kind == "eagle3" else "hidden_size"
    if fields.integer(width) != target.hidden_size:
        raise fields.refusal(width, f"{target.hidden_size}, the width of the target")
    fields.number("rms_norm_eps", 1e-6)
    accuracies = fields.get("accuracies")
    if accuracies is not None and not _are_shares(accuracies):
        raise fields.refusal("accuracies", "a list of shares from 0 to 1 for each head")
    others, length = fields.get("capture_alternatives"), len(fields.get("capture") or ())
    if others is not None and not (
        head.kind == "eagle3"
        and isinstance(others, list)
        and all(are_layers(way, target.num_hidden_layers) and len(way) == length for way in others)
    ):
        raise fields.refusal("capture_alternatives", "lists of layers, as many as in 'capture'")


def _are_shares(value: Any) -> bool:
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        return False
    shares = [share for row in value for share in row]
    return all(type(share) in (int, float) and 0 <= share <= 1 for share in shares)
