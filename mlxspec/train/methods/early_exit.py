"""Train an early exit: distil the target's output distribution into its lower layers.

The lens is the least-squares map from the states that enter the exit's layer to the final ones. It
alone predicts a quarter of the tokens correctly; the raw states predict a tenth. Then soft
cross-entropy over the drafted tokens pulls the exit's distribution towards the target's (Hinton et
al. 2015, https://arxiv.org/abs/1503.02531), and a second loss its state towards the final state.
"""

from collections.abc import Iterable
from typing import Any, Self

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from mlxspec.drafters.early_exit import DEFAULT_THRESHOLD, ExitHead
from mlxspec.models import TargetModel
from mlxspec.train.data.corpus import GREEDY
from mlxspec.train.features import Features, rows_at
from mlxspec.train.methods.last_layer import inner_width
from mlxspec.train.objective import LOOKAHEAD, Material, Objective, capture_layers, chain_matches
from mlxspec.train.reduced_head import reduced_head, soft_cross_entropy, target_probs

_RIDGE = 1e-3  # times the mean square of the inputs: a thousand tokens give a useful lens


class ExitObjective(Objective):
    """Trains an exit for one target."""

    def __init__(
        self,
        model: TargetModel,
        target_ids: mx.array,  # (n,) int32 tokens that can be drafted
        *,
        layer: int,  # the layer whose input state the exit uses
        num_blocks: int = 1,  # residual blocks
        intermediate_size: int | None = None,
        threshold: float = DEFAULT_THRESHOLD,
        state_weight: float = 0.2,  # weight of the squared distance to the target's own final state
    ) -> None:
        """Make an untrained exit (see `fit_lens`).

        The width inside a block is by default that of the target's MLPs. Drafting stops where the
        confidence is below the threshold.
        """
        model.norm(mx.zeros((1, model.config.hidden_size)))  # raises where no exit can draft
        width = inner_width(model) if intermediate_size is None else intermediate_size
        if min(num_blocks, width) < 1 or not 0 < threshold <= 1:
            raise ValueError(
                "num_blocks and intermediate_size must be 1 or more, and the threshold above 0 and "
                f"at most 1; got {num_blocks}, {width} and {threshold}"
            )
        self.network = ExitHead(
            {
                "layer": layer,
                "hidden_size": model.config.hidden_size,
                "intermediate_size": width,
                "num_blocks": num_blocks,
                "threshold": threshold,
                "rms_norm_eps": model.config.rms_norm_eps,
            },
            target_ids,
        )
        for block in self.network.blocks:
            # a block adds nothing at first, so training starts from the lens alone
            block.down_proj.weight = mx.zeros_like(block.down_proj.weight)
        self._target_ids, self._state_weight = target_ids, state_weight
        self._head = reduced_head(model, target_ids)

    @classmethod
    def build(cls, material: Material, **options: Any) -> Self:
        layers = capture_layers(material.model.config.num_hidden_layers)
        options = {"layer": layers[len(layers) // 2], **options}
        shard = material.first_shard([options["layer"]])
        objective = cls(material.model, material.ids, **options)
        objective.fit_lens(shard)  # one shard has enough tokens, see there
        return objective

    def fit_lens(self, conversations: Iterable[Features]) -> None:
        """Set the lens; ten thousand tokens are enough, and more do no harm."""
        D = self.network.config["hidden_size"]
        squares, products = np.zeros((D + 1, D + 1)), np.zeros((D + 1, D))
        final, count = 0.0, 0
        for features in conversations:
            rows = np.flatnonzero(features.mask[1:])
            states = np.array(self.network.input_norm(self._entering(features, rows)))
            inputs = np.pad(states, [(0, 0), (0, 1)], constant_values=1.0)
            truth = np.array(features.final_at(rows))
            squares += inputs.T @ inputs
            products += inputs.T @ truth
            final, count = final + float(np.square(truth).sum()), count + truth.size
        if count == 0:
            raise ValueError("a lens cannot be fitted to conversations without assistant tokens")
        ridge = _RIDGE * np.trace(squares) / (D + 1)
        lens = np.linalg.solve(squares + ridge * np.eye(D + 1), products)
        self.network.fc.weight = mx.array(lens[:D].T.astype(np.float32))
        self.network.fc.bias = mx.array(lens[D].astype(np.float32))
        self.network.norm.weight = mx.full(D, (final / count) ** 0.5)
        mx.eval(self.network.parameters())

    def loss(self, features: Features) -> mx.array:
        rows = np.flatnonzero(features.mask[1:])
        if len(rows) == 0:
            return mx.array(0.0)
        hidden = self.network(self._entering(features, rows))
        truth = features.final_at(rows)
        probs = target_probs(truth, self._head)
        distance = mx.square(hidden - truth).mean(axis=-1).sum() / mx.square(truth).mean()
        return soft_cross_entropy(hidden, self._head, probs) + self._state_weight * distance

    def matches(self, features: Features) -> NDArray[np.bool_]:
        rows = np.flatnonzero(features.mask[1:] == GREEDY)
        hits = self.drafted(features, rows) == features.tokens[rows + 1]
        return chain_matches(rows, [hits] * LOOKAHEAD)

    def drafted(self, features: Features, rows: NDArray[np.intp]) -> NDArray[np.int32]:
        """Return the exit's most probable token at some positions."""
        logits = self._head.logits(self.network(self._entering(features, rows)))
        return np.array(self._target_ids[mx.argmax(logits, axis=-1)])

    def _entering(self, features: Features, rows: NDArray[np.intp]) -> mx.array:
        return rows_at(features.entering[self.network.layer], rows)
