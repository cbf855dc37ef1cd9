"""A trained drafter as the training loop sees it: a network, its loss, its acceptance, its file.

Acceptance is the mean acceptance length of teacher-forced matches; nothing is drafted or verified.
Along a text that the target wrote, one forward gives the tokens of both for all positions.
"""

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, cast, get_type_hints

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten
from numpy.typing import NDArray

from mlxspec.errors import MlxspecError
from mlxspec.models import TargetModel
from mlxspec.train.data.corpus import GREEDY
from mlxspec.train.features import Features, read_shard

LOOKAHEAD = 4  # depth of the measured chains, for drafters without a limit of their own


@dataclass(frozen=True)
class Material:
    """The inputs from which an objective is built."""

    model: TargetModel  # the target
    shards: Sequence[Path]  # one or more feature shards for training
    counts: NDArray[np.int64]  # (V,) int64 number of times that the target wrote each token in them
    target_ids: NDArray[np.int32]  # (n,) int32 tokens that can be drafted

    @property
    def ids(self) -> mx.array:
        return mx.array(self.target_ids)

    def first_shard(self, layers: Collection[int] = ()) -> list[Features]:
        """Return conversations; raises `MlxspecError` if they lack the states of some layers."""
        found = list(read_shard(self.shards[0]))
        there = found[0].entering
        if missing := [layer for layer in layers if layer not in there]:
            raise MlxspecError(
                f"{self.shards[0].parent} holds the states entering the layers "
                f"{', '.join(map(str, sorted(there))) or '(none)'}, not {missing[0]}: choose one "
                "of these, or make features with this target"
            )
        return found


def capture_layers(num_layers: int) -> tuple[int, ...]:
    """Return the layers whose entering states EAGLE-3 uses: low, middle, high, each once."""
    return tuple(sorted({min(2, num_layers - 1), num_layers // 2, max(num_layers - 3, 1)}))


class Objective:
    """Trains a network for one target; keyword arguments of a subclass are a recipe's options."""

    bits: ClassVar[int] = 8  # of the matrices in the file
    layer_bits: ClassVar[int] = 8  # of a draft model's layers, which need more than its embedding
    network: nn.Module

    @classmethod
    def option_types(cls) -> dict[str, Any]:
        arguments = inspect.signature(cls).parameters.values()
        types = get_type_hints(cls.__init__)
        return {one.name: types[one.name] for one in arguments if one.kind is one.KEYWORD_ONLY}

    @classmethod
    def build(cls, material: Material, **options: Any) -> Self:
        """Return the objective before the first step; missing options have their defaults."""
        raise NotImplementedError

    def loss(self, features: Features) -> mx.array:
        """Return the loss summed over the assistant tokens of one conversation."""
        raise NotImplementedError

    def matches(self, features: Features) -> NDArray[np.bool_]:
        """Return the `chain_matches` of the greedy answers of one conversation, which has some."""
        raise NotImplementedError

    def evaluate(self, conversations: Sequence[Features]) -> dict[str, Any]:
        """Return figures of held-out conversations, "mean_acceptance_length" among them."""
        answered = [one for one in conversations if GREEDY in one.mask[2:]]
        return chain_figures([self.matches(features) for features in answered])

    def written(self, figures: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, mx.array]]:
        """Return config and tensors of the trained drafter, whose best evaluation is given."""
        network: Any = self.network
        return dict(network.config), network.tensors


def flat(tree: Any) -> dict[str, mx.array]:
    """Return the arrays of a tree, keyed by their dotted paths."""
    return dict(cast(list[tuple[str, mx.array]], tree_flatten(tree)))


def runs(places: NDArray[np.intp], ahead: int) -> NDArray[np.intp]:
    """Return the indices of positions that `ahead` more positions follow without a gap."""
    last = len(places) - ahead
    # each is at least 1 more than the one before, so a difference of `ahead` excludes a gap
    return np.flatnonzero(places[ahead:] == places[: max(last, 0)] + ahead)


def chain_matches(places: NDArray[np.intp], hits: Sequence[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """Return the (depths, n_chains) bool matches of one conversation; no chain crosses two answers.

    `hits` tell per depth whether the token drafted for each of the (n,) positions is the target's.
    """
    starts = runs(places, len(hits) - 1)
    return np.stack([hit[starts + depth] for depth, hit in enumerate(hits)])


def chain_figures(matches: Sequence[NDArray[np.bool_]]) -> dict[str, Any]:
    """Return mean acceptance length (bonus included) and acceptance by depth."""
    if not sum(one.shape[1] for one in matches):
        raise MlxspecError(
            "no held-out conversation has a greedy answer that is long enough to measure "
            "acceptance: make more with `mlxspec train data` and `mlxspec train features`"
        )
    joined = np.concatenate([one.astype(np.float64) for one in matches], axis=1)
    # a chain reaches depth d only if all tokens before it match as well
    reached = np.cumprod(joined, axis=0).mean(axis=1)
    return {
        "mean_acceptance_length": 1.0 + float(reached.sum()),
        "top1_by_depth": [round(float(rate), 4) for rate in joined.mean(axis=1)],
    }
