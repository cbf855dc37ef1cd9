"""Early exits for tiny models, and the same arithmetic in NumPy."""

import mlx.core as mx
import numpy as np

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.early_exit import EarlyExitDrafter, ExitHead
from mlxspec.engine.engine import Engine
from tests.support.eagle_reference import target_states
from tests.support.reference import weights_of
from tests.support.tiny import ToyTokenizer, make_cache


def exit_head(model, *, layer=1, num_blocks=1, target_ids=None, noise=0.03, seed=11) -> ExitHead:
    """An exit that is sometimes right: MLPs of the target's last layers, with noise."""
    config = model.config
    ids = None if target_ids is None else mx.array(target_ids, mx.int32)
    sizes = {"hidden_size": config.hidden_size, "intermediate_size": config.intermediate_size}
    head = ExitHead({"layer": layer, "num_blocks": num_blocks, **sizes}, ids)
    weights = {
        "input_norm.weight": mx.full(config.hidden_size, typical_size(model, layer)),
        "fc.weight": mx.eye(config.hidden_size),
        "fc.bias": mx.zeros(config.hidden_size),
        "norm.weight": model.model.norm.weight,
    }
    for j, above in enumerate(model.layers[-num_blocks:]):
        weights[f"blocks.{j}.norm.weight"] = above.post_attention_layernorm.weight
        for name in ("gate_proj", "up_proj", "down_proj"):
            weights[f"blocks.{j}.{name}.weight"] = above.mlp[name].weight
    key = mx.random.key(seed)
    for name, weight in weights.items():
        key, own = mx.random.split(key)
        weights[name] = weight + noise * mx.random.normal(weight.shape, key=own)
    head.load_weights(list(weights.items()))
    mx.eval(head.parameters())
    return head


def random_exit(model) -> ExitHead:
    """An exit for a model whose layers have no form that is known here."""
    sizes = {"hidden_size": model.config.hidden_size, "intermediate_size": 48}
    return ExitHead({"layer": 1, **sizes})


def typical_size(model, layer) -> float:
    """Root mean square of the states entering a layer; as a weight it cancels a norm."""
    decoder = Decoder(model)
    decoder.observe(range(model.config.vocab_size))
    _, (states,) = decoder.hidden_states([min(layer, len(model.layers) - 1)])
    return mx.square(states).mean().sqrt().item()


def exit_drafter(
    decoder: Decoder, *, threshold=0.3, lookahead=4, samples=True, **head
) -> EarlyExitDrafter:
    """An early exit of the decoder's own model."""
    head = exit_head(decoder.model, **head)
    return EarlyExitDrafter(
        head, decoder, threshold=threshold, lookahead=lookahead, samples=samples
    )


def exit_engine(model, kind: str = "full", **options) -> Engine:
    """An engine whose drafter shares its target's decoder."""
    decoder = Decoder(model, make_cache(model, kind))
    drafter = exit_drafter(decoder, **options)
    return Engine(decoder, drafter, ToyTokenizer(model.config.vocab_size), name="tiny")


class ExitTruth:
    """The logits of an exit after a prefix, in NumPy float64 and from scratch."""

    def __init__(self, model, head: ExitHead, ring: tuple[int, int] | None = None):
        """`ring` is the size and the attention sinks of a rotating cache."""
        self.model, self.head, self.ring = model, head, ring
        self._logits: dict[tuple[int, ...], np.ndarray] = {}

    def logits(self, prefix: tuple[int, ...]) -> np.ndarray:
        """(V,) logits; minus infinity for tokens that the exit cannot draft."""
        if prefix not in self._logits:
            self._logits[prefix] = self._head_logits(exit_hidden(self.head, self._entering(prefix)))
        return self._logits[prefix]

    def confidence(self, prefix: tuple[int, ...]) -> float:
        weights = np.exp(self.logits(prefix) - self.logits(prefix).max())
        return 1 / weights.sum()

    def _entering(self, prefix):
        entering, _ = target_states(self.model, weights_of(self.model), prefix, self.ring)
        return entering[self.head.layer][-1]

    def _head_logits(self, hidden):
        is_tied = self.model.config.tie_word_embeddings
        name = "model.embed_tokens.weight" if is_tied else "lm_head.weight"
        logits = weights_of(self.model)[name] @ hidden
        if self.head.target_ids is None:
            return logits
        kept = np.array(self.head.target_ids)
        spread = np.full(len(logits), -np.inf)
        spread[kept] = logits[kept]
        return spread


def exit_hidden(head: ExitHead, state: np.ndarray) -> np.ndarray:
    """The network of an exit, one state (D,) at a time."""
    weights, eps = weights_of(head), head.norm.eps

    def norm(name, x):
        return x / np.sqrt(np.mean(x * x) + eps) * weights[name]

    state = weights["fc.weight"] @ norm("input_norm.weight", state) + weights["fc.bias"]
    for j in range(len(head.blocks)):
        x = norm(f"blocks.{j}.norm.weight", state)
        gate, up, down = (weights[f"blocks.{j}.{n}_proj.weight"] for n in ("gate", "up", "down"))
        state = state + down @ ((gate @ x) / (1 + np.exp(-(gate @ x))) * (up @ x))
    return norm("norm.weight", state)
