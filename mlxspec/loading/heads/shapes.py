"""Tables of the required and optional tensors of each kind of head, with their shapes.

The tables use the sizes of the target, so a head for another target is refused; the error names
the first tensor that does not fit.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.heads.checkpoint import HeadCheckpoint
from mlxspec.loading.heads.config import check_config
from mlxspec.loading.heads.eagle3 import are_layers
from mlxspec.loading.heads.vocabulary import token_ids
from mlxspec.models import TargetConfig
from mlxspec.models.fields import Fields

Shape = tuple[int, ...]
_NAMED = 4  # tensors that a message names; it counts the others
_IDS = ("target_ids", "token_map")


@dataclass
class Wanted:
    """Shapes of required and of optional tensors by name."""

    required: dict[str, Shape] = field(default_factory=dict)
    optional: dict[str, Shape] = field(default_factory=dict)

    def add(self, name: str, shape: Shape, *, required: bool = True) -> None:
        (self.required if required else self.optional)[name] = shape


def check_head(
    head: HeadCheckpoint, target: TargetConfig, place: str, origins: Mapping[str, str]
) -> HeadCheckpoint:
    """Return the head with the tensors of its kind; the names of others are listed as unknown.

    Every message starts with `place`, the path of the head. `origins` maps normalised names to
    names in the checkpoint, if they differ.

    Raises:
        UnsupportedModelError: Tensors are missing or have wrong shapes, or a number of the config
            is missing or impossible.
    """
    fields = Fields(head.config, f"{place}, config")
    wanted = _TABLES[head.kind](fields, head.tensors, target)
    shapes = wanted.required | wanted.optional
    quantised = [name for name in shapes if _with_ending(name, "scales") in head.tensors]
    missing = sorted(wanted.required.keys() - head.tensors.keys())
    if missing:
        raise UnsupportedModelError(
            f"{place} lacks {_named(missing)}: the {head.kind} head is incomplete, or of a layout "
            "that is not known"
        )
    for name in quantised:
        shapes |= _packed_shapes(name, shapes[name], fields)
    found = {name: head.tensors[name] for name in shapes if name in head.tensors}
    for name, array in found.items():
        what = f"{place}: {origins.get(name, name)!r}"
        _check_tensor(array, shapes[name], what)
        if name in _IDS:
            found[name] = token_ids(array, what, target.vocab_size)
        elif name not in quantised and not mx.issubdtype(array.dtype, mx.floating):
            raise UnsupportedModelError(f"{what} is {array.dtype}; it must be floating-point")
    check_config(head, target, fields)
    unknown = tuple(origins.get(name, name) for name in head.tensors if name not in found)
    return HeadCheckpoint(
        head.kind, head.config, found, head.name, head.card, head.unknown + unknown
    )


def _check_tensor(array: mx.array, shape: Shape, what: str) -> None:
    if array.shape != shape:
        raise UnsupportedModelError(
            f"{what} has the shape {array.shape}, not {shape}: the head was made for another "
            "target, or its config is wrong"
        )


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


def _medusa(fields: Fields, tensors: Mapping[str, mx.array], target: TargetConfig) -> Wanted:
    wanted, D = Wanted(), target.hidden_size
    rows = _listed(tensors, "token_map") or target.vocab_size
    has_outputs = any(name.endswith(".out.weight") for name in tensors)
    num_layers = _count(fields, "num_layers", tensors, r"heads\.0\.blocks\.(\d+)\.")
    num_heads = _count(fields, "num_heads", tensors, r"heads\.(\d+)\.")
    if num_heads * num_layers > len(tensors):
        raise fields.refusal("num_layers", f"fewer: {num_heads} heads have {len(tensors)} tensors")
    for head in range(num_heads):
        for layer in range(num_layers):
            wanted.add(f"heads.{head}.blocks.{layer}.weight", (D, D))
            wanted.add(f"heads.{head}.blocks.{layer}.bias", (D,), required=False)
        wanted.add(f"heads.{head}.out.weight", (rows, D), required=has_outputs)
    wanted.add("token_map", (rows,), required=False)
    return wanted


def _eagle(fields: Fields, tensors: Mapping[str, mx.array], target: TargetConfig) -> Wanted:
    wanted, D = Wanted(), target.hidden_size
    rows = _listed(tensors, "target_ids") or target.vocab_size
    has_norms = fields.flag("input_norm", False)
    wanted.add("fc.weight", (D, 2 * D))
    wanted.add("fc.bias", (D,), required=False)
    for layer in range(_count(fields, "num_layers", tensors, r"layers\.(\d+)\.")):
        _add_layer(wanted, f"layers.{layer}.", D, D, fields, tensors)
        wanted.add(f"layers.{layer}.post_attention_layernorm.weight", (D,))
        if layer or has_norms:
            wanted.add(f"layers.{layer}.input_layernorm.weight", (D,))
    if has_norms:
        wanted.add("embedding_layernorm.weight", (D,))
        wanted.add("pre_lm_head_layernorm.weight", (D,))
    wanted.add("embed_tokens.weight", (target.vocab_size, D), required=False)
    wanted.add("lm_head.weight", (rows, D), required=False)
    wanted.add("target_ids", (rows,), required=False)
    return wanted


def _eagle3(fields: Fields, tensors: Mapping[str, mx.array], target: TargetConfig) -> Wanted:
    wanted, D = Wanted(), fields.integer("hidden_size")
    rows, capture = fields.integer("draft_vocab_size"), fields.get("capture")
    if not isinstance(capture, list) or not are_layers(capture, target.num_hidden_layers):
        raise fields.refusal("capture", f"layers 0 to {target.num_hidden_layers} of the target")
    fused = len(capture) * target.hidden_size
    wanted.add("fc.weight", (D, fused))
    wanted.add("fc.bias", (D,), required=False)
    _add_layer(wanted, "layer.", D, 2 * D, fields, tensors)
    for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
        wanted.add(f"layer.{name}.weight", (D,))
    wanted.add("norm.weight", (D,))
    if fields.flag("norm_before_fc", False):
        wanted.add("input_norm.weight", (fused,))
    for tap in range(len(capture) if fields.flag("fc_norm", False) else 0):
        wanted.add(f"fc_norm.{tap}.weight", (target.hidden_size,))
    # then the target's embedding and head do not fit; the check of `fc` reports a wrong target
    is_other_width = fields.integer("target_hidden_size") != D
    wanted.add("embed_tokens.weight", (target.vocab_size, D), required=is_other_width)
    wanted.add("lm_head.weight", (rows, D), required=is_other_width)
    wanted.add("target_ids", (rows,), required=rows != target.vocab_size)
    return wanted


def _exit(fields: Fields, tensors: Mapping[str, mx.array], target: TargetConfig) -> Wanted:
    wanted, D = Wanted(), target.hidden_size
    if not 0 < fields.integer("layer") < target.num_hidden_layers:
        raise fields.refusal("layer", f"1 to {target.num_hidden_layers - 1}: a layer to stop at")
    inner = fields.integer("intermediate_size")
    wanted.add("input_norm.weight", (D,))
    wanted.add("fc.weight", (D, D))
    wanted.add("fc.bias", (D,))
    for block in range(_count(fields, "num_blocks", tensors, r"blocks\.(\d+)\.")):
        wanted.add(f"blocks.{block}.norm.weight", (D,))
        wanted.add(f"blocks.{block}.gate_proj.weight", (inner, D))
        wanted.add(f"blocks.{block}.up_proj.weight", (inner, D))
        wanted.add(f"blocks.{block}.down_proj.weight", (D, inner))
    wanted.add("norm.weight", (D,))
    ids = _listed(tensors, "target_ids") or 0
    wanted.add("target_ids", (ids,), required=False)
    return wanted


_TABLES: dict[str, Callable[[Fields, Mapping[str, mx.array], TargetConfig], Wanted]] = {
    "medusa": _medusa,
    "eagle": _eagle,
    "eagle3": _eagle3,
    "exit": _exit,
}


def _add_layer(
    wanted: Wanted, layer: str, D: int, read: int, fields: Fields, tensors: Mapping[str, Any]
) -> None:
    """Add the shapes of attention, whose inputs have width `read`, and of the MLP."""
    head_dim = fields.integer("head_dim")
    queries = fields.integer("num_attention_heads") * head_dim
    keys = fields.integer("num_key_value_heads") * head_dim
    inner = fields.integer("intermediate_size")
    has_bias = f"{layer}self_attn.q_proj.bias" in tensors
    for name, rows in (("q", queries), ("k", keys), ("v", keys)):
        wanted.add(f"{layer}self_attn.{name}_proj.weight", (rows, read))
        wanted.add(f"{layer}self_attn.{name}_proj.bias", (rows,), required=has_bias)
    wanted.add(f"{layer}self_attn.o_proj.weight", (D, queries))
    wanted.add(f"{layer}self_attn.o_proj.bias", (D,), required=False)
    has_bias = f"{layer}mlp.gate_proj.bias" in tensors
    for name, rows, columns in (("gate", inner, D), ("up", inner, D), ("down", D, inner)):
        wanted.add(f"{layer}mlp.{name}_proj.weight", (rows, columns))
        wanted.add(f"{layer}mlp.{name}_proj.bias", (rows,), required=has_bias)


def _count(fields: Fields, key: str, tensors: Mapping[str, mx.array], pattern: str) -> int:
    """Return a number of modules: the stated one, else the count by names of tensors."""
    found = {match[1] for match in (re.match(pattern, name) for name in tensors) if match}
    number = fields.integer(key, len(found), minimum=0)
    if number > len(tensors):
        raise fields.refusal(key, f"at most {len(tensors)}, the number of its tensors")
    return number


def _listed(tensors: Mapping[str, mx.array], name: str) -> int:
    return tensors[name].size if name in tensors else 0


def _named(names: list[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
