"""EAGLE-3: one small layer drafts from hidden states of three layers of the target.

The target's own forwards capture the states entering a low, a middle and a high layer, and the
drafter fuses them. While drafting, the output of its layer before the norm replaces them. A reduced
draft vocabulary makes the output head cheap (Li et al. 2025, https://arxiv.org/abs/2503.01840).
"""

import mlx.core as mx

from mlxspec.decoder.hidden import HiddenStates
from mlxspec.drafters.eagle.base import EagleBase, JoinedHead
from mlxspec.drafters.eagle.network import Eagle3Network
from mlxspec.errors import UnsupportedModelError
from mlxspec.kv.cache import Cache
from mlxspec.kv.masks import Masks
from mlxspec.models import TargetModel

__all__ = ["Eagle3Drafter", "Eagle3Head", "Eagle3Network"]


class Eagle3Head(JoinedHead):
    """An EAGLE-3 network, joined to its target.

    `capture` lists the layers of the target whose entering states are its input.
    """

    num_layers = 1

    def __init__(self, network: Eagle3Network, model: TargetModel) -> None:
        _check(network, model)
        super().__init__(network, model, network.norm.weight.dtype)
        self.capture = network.capture
        self._network = network

    def features(self, states: HiddenStates) -> mx.array:
        taps = mx.concatenate([states.entering[layer] for layer in self.capture], axis=-1)
        return self._network.fuse(taps.astype(self._dtype))

    def run(
        self,
        tokens: mx.array,
        features: mx.array,
        cache: Cache,
        positions: int | mx.array,
        masks: Masks,
    ) -> tuple[mx.array, mx.array]:
        embeddings = self.embed(tokens)
        states, after = self._network(embeddings, features[None], cache, positions, masks)
        return states[0], after[0]


class Eagle3Drafter(EagleBase):
    """Drafts with an EAGLE-3 network."""

    name = "eagle3"
    head_type = Eagle3Head


def _check(network: Eagle3Network, model: TargetModel) -> None:
    config, target = network.config, model.config
    width = config["target_hidden_size"]
    is_joined = "embed_tokens" in network and "lm_head" in network
    if width != target.hidden_size or not (is_joined or config["hidden_size"] == width):
        raise UnsupportedModelError(
            f"the EAGLE-3 head was made for a target of hidden size {width} and has hidden size "
            f"{config['hidden_size']} itself; this target's hidden size is "
            f"{target.hidden_size}: choose the head that was trained for it"
        )
    if not all(0 <= layer <= target.num_hidden_layers for layer in network.capture):
        raise UnsupportedModelError(
            f"the EAGLE-3 head needs the states entering layers {list(network.capture)}; this "
            f"target has {target.num_hidden_layers} layers: choose the head trained for it"
        )
