"""A tiny target's features on disk, and a network that is quick to train."""

from dataclasses import replace

import mlx.core as mx
import numpy as np
from mlx import nn

from mlxspec.train.data.corpus import Conversation
from mlxspec.train.features import compute_features, missing_shards, write_shards
from tests.support.tiny import tiny_model

LAYERS = (0, 1, 2)


def conversation(length=20, *, seed=0, vocab_size=24, prompt=5, kind=1, is_heldout=False):
    """Random tokens, the first of them a prompt."""
    tokens = np.random.default_rng(seed).integers(0, vocab_size, length).astype(np.int32)
    mask = np.full(length, kind, np.uint8)
    mask[:prompt] = 0
    return Conversation(tokens, mask, is_heldout)


def features(model=None, **settings):
    return compute_features(model or tiny_model(), conversation(**settings), LAYERS)


def with_gap(features, start, end):
    """The same text, with a user's turn from start to end."""
    mask = features.mask.copy()
    mask[start:end] = 0
    return replace(features, mask=mask)


def mean_chain(hits, places):
    """1 + accepted tokens per chain, over all chains whose positions are all in `places`.

    `hits[depth][position]` is whether the token drafted for a position is the target's.
    """
    lengths = []
    for first in sorted(set(places)):
        chain = [(depth, first + depth) for depth in range(len(hits))]
        if {position for _, position in chain} <= set(places):
            rights = [bool(hits[depth][position]) for depth, position in chain]
            lengths.append([*rights, False].index(False))
    return 1 + sum(lengths) / len(lengths)


def write_features(folder, *, num_train=6, num_heldout=2, model=None, layers=LAYERS, **settings):
    """Shards of a tiny target."""
    corpus = [
        conversation(seed=i, is_heldout=i < num_heldout, **settings) for i in range(num_train)
    ]
    shards = missing_shards(corpus, folder, max_heldout=num_heldout)
    write_shards(model or tiny_model(), corpus, shards, folder, layers, lambda tokens: None)
    return folder


class Regression:
    """Learns the target's final state from its embedding: an objective for tests of the loop."""

    def __init__(self, seed=0):
        mx.random.seed(seed)
        self.network = nn.Linear(64, 64)

    def loss(self, features):
        difference = self.network(features.entering[0].astype(mx.float32)) - features.final
        return mx.square(difference).sum()

    def evaluate(self, conversations):
        loss = sum(self.loss(one).item() for one in conversations)
        return {"mean_acceptance_length": 1 + 1 / (1 + loss)}
