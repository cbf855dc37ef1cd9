"""Drafters of the EAGLE family in NumPy float64: without a cache, every path from scratch.

Written from the papers and the layouts of published checkpoints. It calls nothing of the package
and uses only weights and settings. For each path below the root, the target's states, the pairs and
all rows of the drafter are computed again.
"""

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten


class Weights:
    """The parameters of a module by name, and the arithmetic on them."""

    def __init__(self, module, eps):
        self.arrays = {
            name: np.array(array.astype(mx.float32), np.float64)
            for name, array in tree_flatten(module.parameters())
        }
        self.eps = eps

    def __contains__(self, name):
        return f"{name}.weight" in self.arrays

    def linear(self, name, x):
        return x @ self.arrays[f"{name}.weight"].T + self.arrays.get(f"{name}.bias", 0.0)

    def norm(self, name, x):
        if name not in self:
            return x
        root = np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.eps)
        return x / root * self.arrays[f"{name}.weight"]

    def mlp(self, prefix, x):
        gate = self.linear(f"{prefix}.gate_proj", x)
        silu = gate / (1 + np.exp(-gate))
        return self.linear(f"{prefix}.down_proj", silu * self.linear(f"{prefix}.up_proj", x))

    def attention(self, prefix, x, seen, settings):
        heads, kv_heads, size, theta = settings
        queries, keys, values = (
            self.linear(f"{prefix}.{name}_proj", x).reshape(len(x), -1, size) for name in "qkv"
        )
        outputs = []
        for head in range(heads):
            shared = head * kv_heads // heads
            query, key = turned(queries[:, head], theta), turned(keys[:, shared], theta)
            scores = np.where(seen, query @ key.T / np.sqrt(size), -np.inf)
            outputs.append(softmax(scores) @ values[:, shared])
        return self.linear(f"{prefix}.o_proj", np.concatenate(outputs, axis=1))


def turned(x, theta):
    """Rotate row i, seen as complex numbers x[j] + 1j x[j + size/2], by i * theta ** (-2j/size)."""
    half = x.shape[1] // 2
    angles = np.outer(np.arange(len(x)), theta ** (-np.arange(half) / half))
    numbers = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * angles)
    return np.concatenate([numbers.real, numbers.imag], axis=1)


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def visible(length, ring):
    """(length, length) bool: visible positions of a rotating cache (size, sinks) or a full one."""
    age = np.subtract.outer(np.arange(length), np.arange(length))
    if ring is None:
        return age >= 0
    size, kept = ring
    return (age >= 0) & ((age < size - kept) | (np.arange(length)[None] < kept))


class ReferenceDrafter:
    """The distribution of an EAGLE drafter after any path below a root.

    Args:
        model: The target.
        network: An `EagleNetwork` or `Eagle3Network`.
        target_ids: Target token of each draft token, or None.
        ring: Size and attention sinks of both caches; None for full ones.
    """

    def __init__(self, model, network, target_ids=None, ring=None):
        self.config, self.ring, self.target_ids = model.config, ring, target_ids
        self.target = Weights(model, model.config.rms_norm_eps)
        self.settings = network.config
        self.own = Weights(network, network.config["rms_norm_eps"])
        self.is_eagle3 = "capture" in self.settings
        self._logits = {}

    def probs(self, history, path):
        """{target token: probability} after the root and nodes of `path`."""
        probs = softmax(self.logits(history, path))
        ids = range(len(probs)) if self.target_ids is None else self.target_ids
        return dict(zip(ids, probs, strict=True))

    def logits(self, history, path):
        """(V_draft,) logits after `path`, root first; the target's cache holds `history`."""
        key = tuple(history), tuple(path)
        if key not in self._logits:
            self._logits[key] = self._compute(*key)
        return self._logits[key]

    def _compute(self, history, path):
        features = list(self._features(history))
        tokens = [*history[1:], *path]
        for _ in range(len(path) - 1):  # the drafter's own output replaces the states
            rows, after = self._run(tokens[: len(features)], np.array(features))
            features.append(after[-1])
        rows, _ = self._run(tokens, np.array(features))
        return self._head(rows[-1])

    def _features(self, history):
        entering, final = self.target_states(history)
        if not self.is_eagle3:
            return final
        taps = [entering[layer] for layer in self.settings["capture"]]
        taps = [self.own.norm(f"fc_norm.{number}", tap) for number, tap in enumerate(taps)]
        return self.own.linear("fc", self.own.norm("input_norm", np.concatenate(taps, axis=1)))

    def target_states(self, tokens):
        """The states entering each layer, the output of the last layer, and of the final norm."""
        config, weights = self.config, self.target
        settings = (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
            config.rope_theta,
        )
        x = weights.arrays["model.embed_tokens.weight"][list(tokens)]
        seen, entering = visible(len(tokens), self.ring), []
        for index in range(config.num_hidden_layers):
            entering.append(x)
            name = f"model.layers.{index}"
            normed = weights.norm(f"{name}.input_layernorm", x)
            x = x + weights.attention(f"{name}.self_attn", normed, seen, settings)
            x = x + weights.mlp(f"{name}.mlp", weights.norm(f"{name}.post_attention_layernorm", x))
        return [*entering, x], weights.norm("model.norm", x)

    def _run(self, tokens, features):
        """Rows for the head, and the replacement for the features of the next token."""
        own = "embed_tokens" in self.own
        table = self.own.arrays["embed_tokens.weight"] if own else None
        if table is None:
            table = self.target.arrays["model.embed_tokens.weight"]
        embeddings = table[list(tokens)]
        return (self._run_eagle3 if self.is_eagle3 else self._run_eagle)(embeddings, features)

    def _run_eagle3(self, embeddings, g):
        own, settings = self.own, self.settings
        normed = own.norm("layer.hidden_norm", g)
        both = np.concatenate([own.norm("layer.input_layernorm", embeddings), normed], axis=1)
        x = normed if settings.get("norm_before_residual") else g
        x = x + self._attention("layer.self_attn", both)
        x = x + own.mlp("layer.mlp", own.norm("layer.post_attention_layernorm", x))
        rows = own.norm("norm", x)
        return rows, rows if settings.get("norm_output") else x

    def _run_eagle(self, embeddings, hidden):
        own = self.own
        x = np.concatenate([own.norm("embedding_layernorm", embeddings), hidden], axis=1)
        x = own.linear("fc", x)
        for index in range(self.settings.get("num_layers", 1)):
            name = f"layers.{index}"
            normed = own.norm(f"{name}.input_layernorm", x)  # the first layer has none
            x = x + self._attention(f"{name}.self_attn", normed)
            x = x + own.mlp(f"{name}.mlp", own.norm(f"{name}.post_attention_layernorm", x))
        x = own.norm("pre_lm_head_layernorm", x)
        return x, x

    def _attention(self, prefix, x):
        names = ("num_attention_heads", "num_key_value_heads", "head_dim", "rope_theta")
        settings = tuple(self.settings[name] for name in names)
        return self.own.attention(prefix, x, visible(len(x), self.ring), settings)

    def _head(self, row):
        if "lm_head" in self.own:
            return self.own.linear("lm_head", row)
        is_tied = self.config.tie_word_embeddings
        name = "model.embed_tokens" if is_tied else "lm_head"
        logits = self.target.linear(name, row)
        return logits if self.target_ids is None else logits[list(self.target_ids)]


def beam(next_probs, width, depth, budget):
    """{path: probability} of the tree of EAGLE-2, built step by step; paths without the root.

    Args:
        next_probs: Function from a path to {token: probability}.
        width: Nodes expanded per level, and children of each.
        depth: Number of levels.
        budget: Number of paths.
    """
    offered, level = {}, {(): 1.0}
    for _ in range(depth):
        children = {
            (*path, token): reached * prob
            for path, reached in level.items()
            for token, prob in best(next_probs(path), width).items()
        }
        offered |= children
        level = best(children, width)
    return best(offered, budget)


def best(values, count):
    return dict(sorted(values.items(), key=lambda item: -item[1])[:count])


def paths_of(draft):
    """{path: path probability} in the order of the nodes, without the root."""
    tokens, parents = draft.tree.tokens.tolist(), draft.tree.parents.tolist()
    edges = [1.0, *draft.node_probs.tolist()]
    paths, probs = [()], [1.0]
    for token, parent, prob in zip(tokens[1:], parents[1:], edges[1:], strict=True):
        paths.append((*paths[parent], token))
        probs.append(probs[parent] * prob)
    assert len(set(paths)) == len(paths)
    return dict(zip(paths[1:], probs[1:], strict=True))
