"""Train Medusa heads: one cross-entropy for each (Medusa-1, https://arxiv.org/abs/2401.10774).

The input of head i is the state at token t, and it predicts token t+2+i; later heads have a
smaller weight. The paper's label is the token that was written there; here it is the target's
distribution. The blocks start at zero: every head starts as the prediction of token t+1.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import mlx.core as mx
import numpy as np
from mlx.utils import tree_map
from numpy.typing import NDArray

from mlxspec.drafters.medusa import MedusaHeads
from mlxspec.models import TargetModel
from mlxspec.train.data.corpus import GREEDY
from mlxspec.train.features import Features
from mlxspec.train.objective import Material, Objective, chain_figures, runs
from mlxspec.train.reduced_head import reduced_head, soft_cross_entropy, target_probs
from mlxspec.verify.distribution import top_tokens

NUM_RANKS = 10  # accuracies are measured for a head's ten most probable tokens


class MedusaObjective(Objective):
    """Trains heads for one target."""

    def __init__(
        self,
        model: TargetModel,
        target_ids: mx.array,  # (draft_vocab,) int32 tokens that can be drafted
        *,
        num_heads: int = 4,  # number of heads, and so the depth of a draft
        num_blocks: int = 2,  # residual blocks of each head
        decay: float = 0.8,  # weight of each head relative to the one before
    ) -> None:
        if min(num_heads, num_blocks) < 1:
            raise ValueError(
                f"num_heads and num_blocks must be 1 or more; got {num_heads} and {num_blocks}"
            )
        config = {
            "hidden_size": model.config.hidden_size,
            "vocab_size": model.config.vocab_size,
            "num_heads": num_heads,
            "num_layers": num_blocks,
        }
        self.network = MedusaHeads(config, num_heads, num_blocks, target_ids=target_ids)
        self.network.update(tree_map(mx.zeros_like, self.network.parameters()))
        self._target_ids, self._decay = target_ids, decay
        self._head = reduced_head(model, target_ids)

    @classmethod
    def build(cls, material: Material, **options: Any) -> Self:
        return cls(material.model, material.ids, **options)

    def loss(self, features: Features) -> mx.array:
        positions = np.flatnonzero(features.mask[2:])  # i: token i + 2 is the assistant's
        if len(positions) == 0:
            return mx.array(0.0)
        hidden = features.final_at(positions)
        probs = target_probs(features.final_at(positions + 1), self._head)
        total, weight = mx.array(0.0), 1.0
        for ahead, head in enumerate(self.network.heads):
            starts = runs(positions, ahead)
            if len(starts):
                states, labels = head(hidden[mx.array(starts)]), probs[mx.array(starts + ahead)]
                total = total + weight * soft_cross_entropy(states, self._head, labels)
            weight *= self._decay
        return total

    def written(self, figures: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, mx.array]]:
        config = {**self.network.config, "accuracies": figures["accuracies"]}
        return config, self.network.tensors

    def evaluate(self, conversations: Sequence[Features]) -> dict[str, Any]:
        """Return also the share of positions where each head's token of each rank is right."""
        ranks = [self._ranks(features) for features in conversations]
        figures = chain_figures([one == 0 for one in ranks])
        joined = np.concatenate(ranks, axis=1)
        shares = [(joined == rank).mean(axis=1) for rank in range(NUM_RANKS)]
        accuracies = [[round(float(share), 4) for share in row] for row in np.transpose(shares)]
        return {**figures, "accuracies": accuracies}

    def _ranks(self, features: Features) -> NDArray[np.int64]:
        """Return (H, n) rank of the written token, `NUM_RANKS` if it is not among the first."""
        heads = self.network.heads
        positions = np.flatnonzero(features.mask[2:] == GREEDY)
        starts = positions[runs(positions, len(heads) - 1)]
        ranks = np.zeros((len(heads), len(starts)), np.int64)
        if len(starts):
            hidden = features.final_at(starts)
            for ahead, head in enumerate(heads):
                best, _ = top_tokens(self._head.logits(head(hidden)), NUM_RANKS)
                guesses = np.array(self._target_ids[best])
                hits = guesses == features.tokens[starts + 2 + ahead, None]
                ranks[ahead] = np.where(hits.any(axis=1), hits.argmax(axis=1), NUM_RANKS)
        return ranks
