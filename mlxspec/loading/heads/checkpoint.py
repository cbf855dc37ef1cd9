"""The common form of trained heads: a kind, a config, and tensors with normalised names.

    medusa   heads.{i}.blocks.{j}.weight (and .bias), and where a head has its own output layer
             heads.{i}.out.weight; token_map holds the ids of a reduced vocabulary
    eagle    fc, layers.{i}.self_attn.{q,k,v,o}_proj, layers.{i}.mlp.{gate,up,down}_proj,
             layers.{i}.post_attention_layernorm, layers.{i}.input_layernorm (not in layer 0, but
             in heads with `input_norm`, which have embedding_layernorm and pre_lm_head_layernorm
             too); embed_tokens, lm_head and its target_ids where the checkpoint has its own
    eagle3   fc, layer.{input_layernorm,hidden_norm,post_attention_layernorm}, layer.self_attn.*,
             layer.mlp.*, norm; lm_head, target_ids, embed_tokens, input_norm (before fc, over all
             taps) and fc_norm.{i} (before fc, per tap) where the checkpoint has them
    exit     input_norm, fc, blocks.{j}.{norm,gate_proj,up_proj,down_proj}, norm; target_ids where
             it has a reduced vocabulary

Quantised tensors follow MLX: `X.weight`, `X.scales`, `X.biases` by `config["quantization"]`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

KINDS = ("medusa", "eagle", "eagle3", "exit")


@dataclass(frozen=True)
class HeadCheckpoint:
    """A trained head as it was stored; the drafter of its kind builds a network from it.

    Attributes:
        kind: One of `KINDS`.
        config: Its numbers, with the same names for every layout. If the config of an EAGLE-3 head
            can mean two lists of layers, `capture` is the more probable one, and
            `capture_alternatives` holds the other.
        tensors: Its arrays by normalised name, in their stored types.
        name: Name for messages and screens.
        card: Facts about it: recipe and figures of a head of mlxspec; of another head `layout`,
            `target` (its `name`, if stated) and `note` (a warning for the user).
        unknown: Names in the checkpoint that no rule covers; the head works without them.
    """

    kind: str
    config: dict[str, Any]
    tensors: dict[str, mx.array] = field(repr=False)
    name: str
    card: Mapping[str, Any]
    unknown: tuple[str, ...] = ()
