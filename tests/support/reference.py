"""The reference: a slow, simple forward in NumPy float64, and a cache that only concatenates.

`reference_logits` shares no code with the package: from a model's weights and settings it computes
the formulas of the papers, one head at a time. The goldens of Hugging Face cover scaled rotary
embeddings.
"""

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten


class ConcatCache:
    """Holds the rows of each layer in one array that grows with every pass."""

    def __init__(self):
        self.rows: dict[int, tuple[mx.array, mx.array]] = {}

    def stage(self, layer: int, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        if layer in self.rows:
            old_keys, old_values = self.rows[layer]
            keys = mx.concatenate([old_keys, keys], axis=2)
            values = mx.concatenate([old_values, values], axis=2)
        self.rows[layer] = keys, values
        return keys, values

    def copy(self) -> "ConcatCache":
        other = ConcatCache()
        other.rows = dict(self.rows)
        return other


def causal_masks(model, positions, key_positions) -> dict[int | None, mx.array]:
    """Masks of a pass without branches: query i sees key j iff 0 <= i - j < window."""
    distance = np.asarray(positions)[:, None] - np.asarray(key_positions)[None, :]
    windows = set(model.config.layer_windows)
    return {
        window: mx.array((distance >= 0) & (distance < (window or np.inf))) for window in windows
    }


def path_to(parents, node) -> list[int]:
    """Nodes from the root to `node`."""
    return ([] if parents[node] < 0 else path_to(parents, parents[node])) + [node]


def tree_masks(model, n_past, parents) -> dict[int | None, mx.array]:
    """Masks of a tree behind `n_past` tokens: a node sees its path, windows count along it."""
    masks = {}
    for window in set(model.config.layer_windows):
        rows = np.zeros((len(parents), n_past + len(parents)), bool)
        for node in range(len(parents)):
            line = [*range(n_past), *(n_past + other for other in path_to(parents, node))]
            rows[node, line[-window:] if window else line] = True
        masks[window] = mx.array(rows)
    return masks


def weights_of(model) -> dict[str, np.ndarray]:
    """All weights of a model in float64, by name."""
    return {
        name: np.array(array.astype(mx.float32), np.float64)
        for name, array in tree_flatten(model.parameters())
    }


def reference_logits(model, tokens, visible=None, weights=None) -> np.ndarray:
    """(L, V) float64 logits of every position of `tokens`, computed from scratch.

    `visible` is (L, L) bool, True where a query (row) may see a key (column). Without it, every
    token sees itself and all earlier ones. Windows of the layers apply in both cases. `weights`
    are those of `weights_of`, if they are there already.
    """
    config, weights = model.config, weights or weights_of(model)
    length = len(tokens)
    if visible is None:
        visible = np.tril(np.ones((length, length), bool))
    x = weights["model.embed_tokens.weight"][np.asarray(tokens)]
    for layer, window in enumerate(config.layer_windows):
        part = Part(weights, f"model.layers.{layer}.", config.rms_norm_eps)
        age = np.arange(length)[:, None] - np.arange(length)[None, :]
        seen = visible & (age < (window or length))
        x = x + attention(part, config, part.norm("input_layernorm", x), seen)
        x = x + mlp(part, part.norm("post_attention_layernorm", x))
    x = Part(weights, "model.", config.rms_norm_eps).norm("norm", x)
    head = "model.embed_tokens" if config.tie_word_embeddings else "lm_head"
    return x @ weights[f"{head}.weight"].T


class Part:
    """The weights below one prefix."""

    def __init__(self, weights, prefix, eps):
        self.weights, self.prefix, self.eps = weights, prefix, eps

    def linear(self, name, x):
        bias = self.weights.get(f"{self.prefix}{name}.bias", 0.0)
        return x @ self.weights[f"{self.prefix}{name}.weight"].T + bias

    def norm(self, name, x):
        root = np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.eps)
        return x / root * self.weights[f"{self.prefix}{name}.weight"]


def attention(part, config, x, seen):
    size = config.head_dim
    queries, keys, values = (part.linear(f"self_attn.{name}_proj", x) for name in "qkv")
    group = config.num_attention_heads // config.num_key_value_heads
    outputs = []
    for head in range(config.num_attention_heads):
        mine = slice(head * size, (head + 1) * size)
        shared = slice(head // group * size, (head // group + 1) * size)
        query, key = _rotate(config, queries[:, mine]), _rotate(config, keys[:, shared])
        scores = np.where(seen, query @ key.T / np.sqrt(size), -np.inf)
        probs = np.exp(scores - scores.max(axis=1, keepdims=True))
        outputs.append(probs / probs.sum(axis=1, keepdims=True) @ values[:, shared])
    return part.linear("self_attn.o_proj", np.concatenate(outputs, axis=1))


def _rotate(config, x):
    """Turn the complex numbers x[i] + 1j x[i + size/2] by position * theta ** (-2i/size)."""
    if config.rope_scaling is not None:
        raise ValueError("the reference knows the plain rotary embedding only")
    half = config.head_dim // 2
    angles = np.outer(np.arange(len(x)), config.rope_theta ** (-np.arange(half) / half))
    turned = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * angles)
    return np.concatenate([turned.real, turned.imag], axis=1)


def mlp(part, x):
    gate = part.linear("mlp.gate_proj", x)
    return part.linear("mlp.down_proj", gate / (1 + np.exp(-gate)) * part.linear("mlp.up_proj", x))
