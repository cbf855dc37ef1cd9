"""Read trained heads of other projects: their numbers, and their tensors under our names.

Names of tensors determine the layout: configs of heads contain little, and some are wrong.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.heads.file import HeadCheckpoint
from mlxspec.loading.heads.stored import (
    EAGLE,
    EAGLE3,
    MEDUSA,
    Rule,
    StoredHead,
    are_layers,
    token_ids,
)
from mlxspec.models import TargetConfig
from mlxspec.models.fields import Fields
from mlxspec.models.rope import read_rope_scaling, read_rope_theta

_BUNDLED_NOTE = (
    "these heads were trained together with their target, whose weights changed: the target must "
    "be this very checkpoint, not the model it was made from"
)
_SPECULATORS = "transformer_layer_config"  # a key that only configs of speculators have
_LLAMA_HEADS = 32  # default of LlamaConfig
_LLAMA_LENGTH = 2048
_EAGLE_NORMS = (
    *("embedding_layernorm.weight", "layers.0.input_layernorm.weight"),
    "pre_lm_head_layernorm.weight",
)
_CAPTURE = "eagle_aux_hidden_state_layer_ids"


def parse_layout(
    place: Path, config: dict[str, Any], tensors: Mapping[str, mx.array], target: TargetConfig
) -> HeadCheckpoint:
    """Return the unchecked head of a checkpoint with normalised names; `place` is its path."""
    for kind, (marker, rules, read) in _LAYOUTS.items():
        head = StoredHead(place, config, tensors, rules)
        if any(name.startswith(marker) for name in head.tensors):
            numbers, unknown = read(head, target), tuple(head.unknown)
            card = _card(kind, config, is_bundled=any(map(is_bundled, tensors)))
            return HeadCheckpoint(kind, numbers, head.tensors, place.name, card, unknown)
    some = ", ".join(sorted(tensors)[:4]) or "nothing"
    raise UnsupportedModelError(
        f"{place} is not a drafter of a known layout (it holds {some}): Medusa, EAGLE and "
        "EAGLE-3 heads can be loaded, and files that mlxspec trained"
    )


def is_bundled(name: str) -> bool:
    """Return whether a tensor belongs to a head in one checkpoint with its target."""
    return name.startswith("medusa_head.")


def _card(kind: str, config: Mapping[str, Any], *, is_bundled: bool) -> dict[str, Any]:
    name: Any = config.get("base_model_name_or_path")
    if kind != "medusa":
        name = config
        for key in ("speculators_config", "verifier", "name_or_path"):
            name = name.get(key) if isinstance(name, Mapping) else None
    card: dict[str, Any] = {"target": {"name": name}} if isinstance(name, str) else {}
    return {**card, "note": _BUNDLED_NOTE} if is_bundled else card


# ---- Medusa --------------------------------------------------------------------------------


def _read_medusa(head: StoredHead, target: TargetConfig) -> dict[str, Any]:
    fields = Fields(head.config, str(head.place))
    numbers = {
        "hidden_size": target.hidden_size,
        "vocab_size": target.vocab_size,
        "num_heads": head.count(r"heads\.(\d+)\.", "Medusa head"),
        "num_layers": head.count(r"heads\.\d+\.blocks\.(\d+)\.", "Medusa layer"),
    }
    _share_output(head, numbers["num_heads"], fields)
    _reduce_vocabulary(head, "token_map", fields, target)
    return numbers


def _share_output(head: StoredHead, num_heads: int, fields: Fields) -> None:
    """Give every head the output layer that vLLM's file stores once."""
    is_shared = fields.flag("original_lm_head", False) and "heads.0.out.weight" in head.tensors
    one = "lm_head.weight" if "lm_head.weight" in head.tensors else "heads.0.out.weight"
    if one != "lm_head.weight" and not is_shared:
        return
    output = head.tensors.pop(one)
    head.tensors |= {f"heads.{index}.out.weight": output for index in range(num_heads)}


def _reduce_vocabulary(head: StoredHead, ids: str, fields: Fields, target: TargetConfig) -> None:
    """Check the ids, and cut full output layers to their rows; a full vocabulary needs none."""
    if ids not in head.tensors:
        return
    if fields.integer("truncated_vocab_size", 1) >= target.vocab_size:
        head.tensors["token_map"] = head.tensors.pop(ids)
        head.drop("token_map")
        return
    what = f"{head.place}: 'token_map'"
    kept = token_ids(head.tensors[ids], what, target.vocab_size)
    whole = {
        name: array
        for name, array in head.tensors.items()
        if name.endswith((".out.weight", "lm_head.weight"))
        and array.shape[:1] == (target.vocab_size,)
    }
    rows = {id(array): array[kept] for array in whole.values()}  # shared outputs stay shared
    head.tensors |= {name: rows[id(array)] for name, array in whole.items()} | {ids: kept}


# ---- EAGLE ---------------------------------------------------------------------------------


def _read_eagle(head: StoredHead, target: TargetConfig) -> dict[str, Any]:
    fields = _layer_fields(head)
    has_norms = fields.flag("layernorms", "embedding_layernorm.weight" in head.tensors)
    if not has_norms:
        head.drop(*_EAGLE_NORMS)
    _reduce_vocabulary(head, "target_ids", fields, target)
    num_layers = head.count(r"layers\.(\d+)\.", "layer")
    return _layer_config(fields, head, "layers.0") | {
        "num_layers": num_layers,
        "input_norm": has_norms,
        "vocab_size": target.vocab_size,
        "draft_vocab_size": head.rows("target_ids") or target.vocab_size,
    }


def _layer_fields(head: StoredHead) -> Fields:
    """Return the keys of a config; those under "model" (vLLM) or of speculators have priority."""
    merged, place = dict(head.config), str(head.place)
    for key in ("model", _SPECULATORS):
        section = Fields(head.config, place).section(key)
        merged |= {name: section.get(name) for name in head.config.get(key) or ()}
    return Fields(merged, place)


def _layer_config(fields: Fields, head: StoredHead, layer: str) -> dict[str, Any]:
    """Return the numbers of the decoder layer whose tensor names start with `layer`."""
    rows = head.rows(f"{layer}.self_attn.q_proj.weight")
    num_heads = _num_heads(fields, rows)
    length = fields.integer("max_position_embeddings", _LLAMA_LENGTH)
    if fields.text("hidden_act", "silu") != "silu":
        raise fields.refusal("hidden_act", "'silu', the only activation supported")
    inner = head.rows(f"{layer}.mlp.gate_proj.weight")
    return {
        "hidden_size": head.rows("fc.weight") or fields.integer("hidden_size"),
        "intermediate_size": inner or fields.integer("intermediate_size"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": fields.integer("num_key_value_heads", num_heads),
        "head_dim": fields.integer("head_dim", max(rows // num_heads, 1)),
        "rms_norm_eps": fields.number("rms_norm_eps", 1e-6),
        "rope_theta": read_rope_theta(fields),
        "rope_scaling": read_rope_scaling(fields, length),
        "attention_bias": f"{layer}.self_attn.q_proj.bias" in head.tensors,
        "fc_bias": "fc.bias" in head.tensors,
    }


def _num_heads(fields: Fields, rows: int) -> int:
    """Return the stated number; speculators leave out what equals Llama's default."""
    if fields.get("num_attention_heads") is None and _SPECULATORS in fields:
        head_dim = fields.get("head_dim")
        return rows // fields.integer("head_dim") if head_dim is not None else _LLAMA_HEADS
    return fields.integer("num_attention_heads")


# ---- EAGLE-3 -------------------------------------------------------------------------------


def _read_eagle3(head: StoredHead, target: TargetConfig) -> dict[str, Any]:
    fields = _layer_fields(head)
    if more := [name for name in head.unknown if "layers.1." in name]:
        raise UnsupportedModelError(
            f"{head.place} holds {more[0]}: an EAGLE-3 head of several layers; one layer is "
            "supported"
        )
    if (offsets := head.tensors.get("target_ids")) is not None:
        what = f"{head.place}: 'd2t'"
        ids = token_ids(offsets, what, target.vocab_size, are_offsets=True)
        head.tensors["target_ids"] = ids
    rows = head.rows("lm_head.weight") or head.rows("target_ids")
    extra = Fields(head.config, str(head.place)).section("eagle_config")
    flags = {
        "norm_before_residual": _SPECULATORS in fields,
        "norm_before_fc": "input_norm.weight" in head.tensors,
        "fc_norm": "fc_norm.0.weight" in head.tensors,
        "norm_output": False,
    }
    stated = {name: fields.flag(name, extra.flag(name, usual)) for name, usual in flags.items()}
    if not stated["norm_before_fc"]:
        head.drop("input_norm.weight")
    return {
        **_layer_config(fields, head, "layer"),
        "target_hidden_size": target.hidden_size,
        "vocab_size": target.vocab_size,
        "draft_vocab_size": rows or fields.integer("draft_vocab_size", target.vocab_size),
        **_captured(fields, extra, target.num_hidden_layers),
        **stated,
    }


def _captured(fields: Fields, extra: Fields, num_layers: int) -> dict[str, Any]:
    """Return the layers whose entering states are used, and the other possible meaning.

    At the top level of a config, a number is the layer whose entering states are used (vLLM,
    speculators), inside `eagle_config` the layer whose output is (SGLang, SpecForge). A flat config
    can mean either: only the acceptance on real text can decide.
    """
    nested = extra.get(_CAPTURE)
    stated = nested if nested is not None else fields.get(_CAPTURE)
    if stated is None:
        return {"capture": [2, num_layers // 2, num_layers - 3]}
    if not isinstance(stated, list) or not all(type(layer) is int for layer in stated):
        raise (fields if nested is None else extra).refusal(_CAPTURE, "a list of layers")
    if _SPECULATORS in fields:
        return {"capture": stated}
    meanings = [stated, [layer + 1 for layer in stated]]  # input of a layer, output of a layer
    if nested is not None:
        meanings.reverse()
    possible = [layers for layers in meanings if are_layers(layers, num_layers)]
    if len(possible) < len(meanings):
        return {"capture": (possible or meanings)[0]}
    return {"capture": possible[0], "capture_alternatives": possible[1:]}


_Reader = Callable[[StoredHead, TargetConfig], dict[str, Any]]
_LAYOUTS: dict[str, tuple[str, Sequence[Rule], _Reader]] = {
    "medusa": ("heads.", MEDUSA, _read_medusa),
    "eagle3": ("layer.hidden_norm.weight", EAGLE3, _read_eagle3),
    "eagle": ("fc.weight", EAGLE, _read_eagle),
}
"""By kind: how a normalised name starts that no earlier layout has, the rules, the reader."""
