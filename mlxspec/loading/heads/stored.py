"""The tensors in heads of other projects: their names, and what each becomes.

Medusa (Cai et al. 2024, https://arxiv.org/abs/2401.10774):

    {i}.{j}.linear.*, {i}.{L}.weight     the authors' file; heads and layers are counted by names,
                                         because published configs state too few
    {i}.{j}.linear.* alone               their newer file, with the target's output layer
    medusa_head.{i}...                   bundled with a target that was fine-tuned with the heads
    blocks.{i}.layers.{j}.*, lm_heads    vLLM's file, usually with a reduced vocabulary

EAGLE-1 and EAGLE-2, whose weights are the same (Li et al. 2024, https://arxiv.org/abs/2401.15077):

    fc.*, layers.{i}.*                   the authors; fc.bias and q/k/v biases if present
    model.*, lm_head, token_map          vLLM's copy
    fusion_fc.*, transformer.*           speculators, with norms after the embedding, before the
                                         attention and before the head if `layernorms` is true

EAGLE-3 (Li et al. 2025, https://arxiv.org/abs/2503.01840):

    midlayer.* or layers.0.*             the authors, SpecForge, AngelSlim, NVIDIA
    layers.0.*, nested config            speculators

A reduced vocabulary has one of two forms: `token_map` lists the ids, and `d2t` lists offsets, where
token i of the head is token i + d2t[i] of the target.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from mlxspec.errors import UnsupportedModelError

Rule = tuple[str, str]
"""A pattern for a whole name, and its replacement; "" for tensors that are not needed."""

_PARTS = (
    r"((?:self_attn\.[qkvo]|mlp\.(?:gate|up|down))_proj\.(?:weight|bias)"
    r"|(?:post_attention|input)_layernorm\.weight)"
)
MEDUSA: list[Rule] = [
    (r"(?:medusa_heads?\.)?(\d+)\.(\d+)\.linear\.(weight|bias)", r"heads.\1.blocks.\2.\3"),
    (r"(?:medusa_heads?\.)?(\d+)\.\d+\.weight", r"heads.\1.out.weight"),
    (r"(?:medusa_heads\.)?blocks\.(\d+)\.layers\.(\d+)\.(weight|bias)", r"heads.\1.blocks.\2.\3"),
    (r"(?:medusa_heads\.)?lm_heads\.(\d+)\.weight", r"heads.\1.out.weight"),
    (r"(?:medusa_heads\.)?(lm_head\.weight|token_map)", r"\1"),
]
EAGLE: list[Rule] = [
    (r"(?:model\.){0,2}" + pattern, new)
    for pattern, new in (
        (r"(?:fusion_)?fc\.(weight|bias)", r"fc.\1"),
        (r"layers\.(\d+)\." + _PARTS, r"layers.\1.\2"),
        (r"transformer\." + _PARTS, r"layers.0.\1"),
        (r"hidden_layernorm\.weight", "layers.0.input_layernorm.weight"),
        (r"embed(?:ding)?_layernorm\.weight", "embedding_layernorm.weight"),
        (r"(?:pre_)?lm_head_layernorm\.weight", "pre_lm_head_layernorm.weight"),
        (r"(embed_tokens|lm_head)\.weight", r"\1.weight"),
        (r"token_map", "target_ids"),
        (r".*rotary_emb\.inv_freq", ""),
    )
]
EAGLE3: list[Rule] = [
    (r"(?:model\.)?" + pattern, new)
    for pattern, new in (
        (r"fc\.(weight|bias)", r"fc.\1"),
        (r"(?:midlayer|layers\.0)\.(self_attn\.[qkv]_proj\.(?:weight|bias))", r"layer.\1"),
        (r"(?:midlayer|layers\.0)\.((?:self_attn\.o|mlp\.\w+)_proj\.weight)", r"layer.\1"),
        (r"(?:midlayer|layers\.0)\.((?:\w+_layernorm|hidden_norm)\.weight)", r"layer.\1"),
        (r"(norm|input_norm|fc_norm\.\d+|embed_tokens|lm_head)\.weight", r"\1.weight"),
        (r"d2t", "target_ids"),
        (r"(?:t2d|verifier_lm_head\.weight|verifier_norm\.weight)", ""),
        (r".*rotary_emb\.inv_freq", ""),
    )
]


class StoredHead:
    """The config and tensors of a head that is not in the format of mlxspec."""

    def __init__(
        self,
        place: Path,  # its folder or file, for messages
        config: dict[str, Any],  # the content of `config.json`, empty if there is none
        stored: Mapping[str, mx.array],
        rules: Sequence[Rule],
    ) -> None:
        self.place, self.config = place, config
        self.tensors: dict[str, mx.array] = {}  # by normalised name
        self.unknown: list[str] = []  # stored names that no rule covers
        for name, array in stored.items():
            found = ((re.fullmatch(pattern, name, re.ASCII), new) for pattern, new in rules)
            match, new = next(((match, new) for match, new in found if match), (None, ""))
            if match is None:
                self.unknown.append(name)
            elif new:
                self.tensors[match.expand(new)] = array

    def rows(self, name: str) -> int:
        """Return the length of the first axis of a tensor, 0 if there is none."""
        array = self.tensors.get(name)
        return array.shape[0] if array is not None and array.ndim else 0

    def drop(self, *names: str) -> None:
        """Move tensors that the config turns off to the unknown ones."""
        self.unknown += [name for name in names if self.tensors.pop(name, None) is not None]

    def count(self, pattern: str, what: str) -> int:
        """Return how many numbers, 0, 1, 2, ..., the group of a pattern matches in the names."""
        matches = (re.match(pattern, name) for name in self.tensors)
        found = {int(match[1]) for match in matches if match}
        missing = next(index for index in range(len(found) + 1) if index not in found)
        if missing < len(found):
            raise UnsupportedModelError(
                f"{self.place} holds a {what} {max(found)}, but no {what} {missing}: it is "
                "incomplete"
            )
        return len(found)


def token_ids(
    array: mx.array, what: str, vocab_size: int, *, are_offsets: bool = False
) -> mx.array:
    """Return (n,) int32 ids of the target, given them or their offsets from 0, 1, ..."""
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
    return (
        isinstance(capture, list)
        and 0 < len(capture) <= num_layers + 1
        and all(type(layer) is int and 0 <= layer <= num_layers for layer in capture)
    )
