"""Convert the layouts of EAGLE-3 heads to ours.

One decoder layer over [norm(embedding of token t+1); norm(g)], where `fc` computes g from the
states entering some layers of the target (Li et al. 2025, https://arxiv.org/abs/2503.01840).

    midlayer.* or layers.0.*, flat config   the authors, SpecForge, AngelSlim, NVIDIA
    layers.0.*, nested config               speculators

One field names the layers, with two conventions. At the top level of a config, a number is the
layer whose entering states are used (vLLM, speculators). Inside `eagle_config`, it is the layer
whose output is used (SGLang, SpecForge). A flat config can mean either, so the second meaning is
returned as an alternative; only the acceptance on real text can decide.
"""

from typing import Any

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.heads.checkpoint import HeadCheckpoint
from mlxspec.loading.heads.layer import IS_SPECULATORS, layer_fields, named_target, read_layer
from mlxspec.loading.heads.names import ParsedHead, Renamed, rename, without_none
from mlxspec.loading.heads.source import HeadFiles
from mlxspec.loading.heads.vocabulary import token_ids
from mlxspec.models import TargetConfig
from mlxspec.models.fields import Fields

_MODEL = r"(?:model\.)?"
_RULES = [
    (_MODEL + r"fc\.(weight|bias)", r"fc.\1"),
    (
        _MODEL + r"(?:midlayer|layers\.0)\."
        r"(self_attn\.(?:[qkv]_proj\.(?:weight|bias)|o_proj\.weight)|mlp\.(?:gate|up|down)_proj\.weight"
        r"|(?:input_layernorm|hidden_norm|post_attention_layernorm)\.weight)",
        r"layer.\1",
    ),
    (_MODEL + r"(norm|input_norm|fc_norm\.\d+|embed_tokens|lm_head)\.weight", r"\1.weight"),
    (_MODEL + r"d2t", "target_ids"),
    (_MODEL + r"(?:t2d|verifier_lm_head\.weight|verifier_norm\.weight)", ""),
    (r".*rotary_emb\.inv_freq", ""),
]
_LAYERS = "eagle_aux_hidden_state_layer_ids"


def is_eagle3(files: HeadFiles) -> bool:
    """Return whether a checkpoint has a norm of the fused states, which only EAGLE-3 has."""
    return any(name.endswith(".hidden_norm.weight") for name in files.tensors)


def read_eagle3(files: HeadFiles, target: TargetConfig) -> ParsedHead:
    """Return the head of a checkpoint with normalised names.

    Raises:
        UnsupportedModelError: A number of its config is missing or impossible, it has several
            layers, or its tokens are not the target's.
    """
    place = str(files.place)
    fields = layer_fields(files.config, place)
    renamed = rename(files.tensors, _RULES)
    _refuse_more_layers(renamed, place)
    if "target_ids" in renamed:
        offsets, name = renamed.tensors["target_ids"], renamed.origins["target_ids"]
        renamed.tensors["target_ids"] = token_ids(
            offsets, f"{place}: {name!r}", target.vocab_size, are_offsets=True
        )
    extra = Fields(files.config, place).section("eagle_config")
    config = (
        read_layer(fields, renamed, "layer")
        | {
            "target_hidden_size": target.hidden_size,
            "vocab_size": target.vocab_size,
            "draft_vocab_size": _draft_vocab_size(fields, renamed, target),
        }
        | _captured(fields, extra, target)
        | _flags(fields, extra, renamed)
    )
    card = without_none(
        layout="EAGLE-3 of speculators" if IS_SPECULATORS in fields else "EAGLE-3",
        target=named_target(files.config),
    )
    head = HeadCheckpoint(
        "eagle3", config, renamed.tensors, files.name, card, tuple(renamed.unknown)
    )
    return ParsedHead(head, renamed.origins)


def _refuse_more_layers(renamed: Renamed, place: str) -> None:
    more = [name for name in renamed.unknown if "layers.1." in name]
    if more:
        raise UnsupportedModelError(
            f"{place} holds {more[0]}: an EAGLE-3 head of several layers; one layer is supported"
        )


def _draft_vocab_size(fields: Fields, renamed: Renamed, target: TargetConfig) -> int:
    known = renamed.size("lm_head.weight") or renamed.size("target_ids")
    return known or fields.integer("draft_vocab_size", target.vocab_size)


def _captured(
    fields: Fields, extra: Fields, target: TargetConfig
) -> dict[str, list[int] | list[list[int]]]:
    """Return the layers whose entering states are used, and the other possible meaning."""
    num_layers = target.num_hidden_layers
    nested = extra.get(_LAYERS)
    stated = nested if nested is not None else fields.get(_LAYERS)
    if stated is None:
        return {"capture": [2, num_layers // 2, num_layers - 3]}
    if not isinstance(stated, list) or not all(type(layer) is int for layer in stated):
        raise (fields if nested is None else extra).refusal(_LAYERS, "a list of layers")
    if IS_SPECULATORS in fields:
        return {"capture": stated}
    meanings = [stated, [layer + 1 for layer in stated]]  # input of a layer, output of a layer
    if nested is not None:
        meanings.reverse()
    possible = [layers for layers in meanings if are_layers(layers, num_layers)]
    if len(possible) < len(meanings):
        return {"capture": (possible or meanings)[0]}
    return {"capture": possible[0], "capture_alternatives": possible[1:]}


def are_layers(capture: list[Any], num_layers: int) -> bool:
    """Return whether these are layers; the number of layers stands for the last output."""
    return all(type(layer) is int and 0 <= layer <= num_layers for layer in capture)


def _flags(fields: Fields, extra: Fields, renamed: Renamed) -> dict[str, bool]:
    defaults = {
        "norm_before_residual": IS_SPECULATORS in fields,
        "norm_before_fc": "input_norm.weight" in renamed,
        "fc_norm": "fc_norm.0.weight" in renamed,
        "norm_output": False,
    }
    return {
        name: fields.flag(name, extra.flag(name, default)) for name, default in defaults.items()
    }
