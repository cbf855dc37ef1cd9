"""What every layout of a trained head is read into: one kind, one config, one set of names.

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

Quantised ones follow MLX: `X.weight`, `X.scales`, `X.biases` by `config["quantization"]`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

KINDS = ("medusa", "eagle", "eagle3", "exit")


@dataclass(frozen=True)
class HeadCheckpoint:
    """A trained head as it was stored, for a drafter of its kind to build a network from.

    Attributes:
        kind: One of `KINDS`.
        config: Its numbers, by the same names in every layout. Where the layers that an EAGLE-3
            head reads may be meant in two ways, `capture` is the likelier one and
            `capture_alternatives` holds the other.
        tensors: Its arrays by normalised name, in the type they were stored in.
        name: What to call it.
        card: What is known of it: recipe and figures of a head of ours; of another one `layout`,
            `target` (its `name`, where stated) and `note` (what its user must know).
        unknown: Names in the checkpoint that no rule covers; the head runs without them.
    """

    kind: str
    config: dict[str, Any]
    tensors: dict[str, mx.array] = field(repr=False)
    name: str
    card: Mapping[str, Any]
    unknown: tuple[str, ...] = ()
