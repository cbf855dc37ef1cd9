"""Drafters of the EAGLE family in NumPy float64: without a cache, every path from scratch.

Written from the papers and the layouts of published checkpoints, on the arithmetic of `reference`.
It calls nothing of the package and uses only weights and settings. For each path below the root,
the target's states, the pairs and all rows of the drafter are computed again.
"""

from types import SimpleNamespace

import numpy as np

from tests.support.reference import Part, attention, mlp, weights_of


class Own(Part):
    """The weights of a drafter, of which some may be missing."""

    def __contains__(self, name):
        return f"{self.prefix}{name}.weight" in self.weights

    def norm(self, name, x):
        return super().norm(name, x) if name in self else x

    def below(self, name):
        return Own(self.weights, f"{name}.", self.eps)


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


def target_states(model, weights, tokens, ring):
    """The states entering each layer, the output of the last layer, and of the final norm."""
    config, entering = model.config, []
    x = weights["model.embed_tokens.weight"][list(tokens)]
    for index in range(config.num_hidden_layers):
        entering.append(x)
        part = Part(weights, f"model.layers.{index}.", config.rms_norm_eps)
        seen = visible(len(tokens), ring)
        x = x + attention(part, config, part.norm("input_layernorm", x), seen)
        x = x + mlp(part, part.norm("post_attention_layernorm", x))
    return [*entering, x], Part(weights, "model.", config.rms_norm_eps).norm("norm", x)


class ReferenceDrafter:
    """The distribution of an EAGLE drafter after any path below a root.

    Args:
        model: The target.
        network: An `EagleNetwork` or `Eagle3Network`.
        target_ids: Target token of each draft token, or None.
        ring: Size and attention sinks of both caches; None for full ones.
    """

    def __init__(self, model, network, target_ids=None, ring=None):
        self.model, self.ring, self.target_ids = model, ring, target_ids
        self.target = weights_of(model)
        self.settings = network.config
        self.own = Own(weights_of(network), "", network.config["rms_norm_eps"])
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
        entering, final = target_states(self.model, self.target, history, self.ring)
        if not self.is_eagle3:
            return final
        taps = [entering[layer] for layer in self.settings["capture"]]
        taps = [self.own.norm(f"fc_norm.{number}", tap) for number, tap in enumerate(taps)]
        return self.own.linear("fc", self.own.norm("input_norm", np.concatenate(taps, axis=1)))

    def _run(self, tokens, features):
        """Rows for the head, and the replacement for the features of the next token."""
        own = self.own.weights if "embed_tokens" in self.own else None
        name = "embed_tokens.weight"
        table = self.target[f"model.{name}"] if own is None else own[name]
        run = self._run_eagle3 if self.is_eagle3 else self._run_eagle
        return run(table[list(tokens)], features)

    def _run_eagle3(self, embeddings, g):
        own, settings = self.own, self.settings
        normed = own.norm("layer.hidden_norm", g)
        both = np.concatenate([own.norm("layer.input_layernorm", embeddings), normed], axis=1)
        x = normed if settings.get("norm_before_residual") else g
        x = self._layer("layer", x, both)
        rows = own.norm("norm", x)
        return rows, rows if settings.get("norm_output") else x

    def _run_eagle(self, embeddings, hidden):
        own = self.own
        x = np.concatenate([own.norm("embedding_layernorm", embeddings), hidden], axis=1)
        x = own.linear("fc", x)
        for index in range(self.settings.get("num_layers", 1)):
            name = f"layers.{index}"
            normed = own.norm(f"{name}.input_layernorm", x)  # the first layer has none
            x = self._layer(name, x, normed)
        x = own.norm("pre_lm_head_layernorm", x)
        return x, x

    def _layer(self, name, x, attended):
        part, config = self.own.below(name), SimpleNamespace(**self.settings)
        x = x + attention(part, config, attended, visible(len(x), self.ring))
        return x + mlp(part, part.norm("post_attention_layernorm", x))

    def _head(self, row):
        if "lm_head" in self.own:
            return self.own.linear("lm_head", row)
        is_tied = self.model.config.tie_word_embeddings
        logits = self.target[f"{'model.embed_tokens' if is_tied else 'lm_head'}.weight"] @ row
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
