"""Random networks of the EAGLE family for tiny targets, and drafters made of them."""

import mlx.core as mx
import mlx.utils

from mlxspec.drafters.eagle.drafter import EagleDrafter
from mlxspec.drafters.eagle.networks import Eagle3Network, EagleNetwork

# Target tokens of a reduced vocabulary: neither consecutive nor at a constant distance.
TARGET_IDS = (1, 2, 3, 5, 7, 8, 11, 12, 13, 17, 18, 20, 21, 23)


def randomise(network, seed, scale=0.2):
    """Give every parameter a random value that affects the output, norms included."""
    key = mx.random.key(seed)
    weights = []
    for name, array in mlx.utils.tree_flatten(network.parameters()):
        key, sub = mx.random.split(key)
        noise = mx.random.normal(array.shape, key=sub)
        weights.append((name, 1 + 0.3 * noise if "norm" in name else scale * noise))
    network.load_weights(weights)
    mx.eval(network.parameters())
    return network


def layer_config(model, **settings):
    """The settings that a drafter's layer has from a tiny target."""
    config = model.config
    return {
        "hidden_size": config.hidden_size,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "rms_norm_eps": 0.05,  # large enough to matter, and not the target's
        "rope_theta": 5000.0,
        "rope_scaling": None,
        "vocab_size": config.vocab_size,
        **settings,
    }


def eagle3_network(model, *, seed=11, is_reduced=True, own=(), **settings):
    """A random network for a target; `own` lists the layers that it does not share."""
    ids = TARGET_IDS if is_reduced else range(model.config.vocab_size)
    config = layer_config(
        model,
        target_hidden_size=model.config.hidden_size,
        draft_vocab_size=len(ids),
        capture=[0, 1, 2],
        **settings,
    )
    names = {"embedding": "embed_tokens.weight", "head": "lm_head.weight"}
    network = Eagle3Network(
        config,
        mx.array(ids, mx.int32) if is_reduced else None,
        [names[part] for part in own],
    )
    return randomise(network, seed)


def eagle3_drafter(target, *, samples=True, lookahead=4, **settings):
    """A drafter with a random EAGLE-3 network for the target of a decoder."""
    network = eagle3_network(target.model, **settings)
    return EagleDrafter(network, target, samples=samples, lookahead=lookahead)


EAGLE_BIASES = ("fc.bias", *(f"layers.0.self_attn.{name}_proj.bias" for name in "qkv"))
HASS_NORMS = (
    "embedding_layernorm.weight",
    "pre_lm_head_layernorm.weight",
    "layers.0.input_layernorm.weight",
)


def eagle_network(model, *, seed=17, optional=EAGLE_BIASES, **settings):
    """A random EAGLE-1 network for a target; `optional` as in `EagleNetwork`."""
    return randomise(EagleNetwork(layer_config(model, **settings), optional=optional), seed)


def eagle_drafter(target, *, samples=True, lookahead=4, **settings):
    """A drafter with a random EAGLE-1 network for the target of a decoder."""
    network = eagle_network(target.model, **settings)
    return EagleDrafter(network, target, samples=samples, lookahead=lookahead)


EAGLE_DRAFTERS = {"eagle": eagle_drafter, "eagle3": eagle3_drafter}
