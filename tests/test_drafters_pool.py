"""The pool against trees drawn by hand, and the mixture it makes against its formula."""

from itertools import pairwise
from math import exp, log

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec import backend
from mlxspec.draft import Draft, RoundOutcome
from mlxspec.drafters.calibration import HitRate, Mixer, log_odds
from mlxspec.drafters.growth import MAX_DEPTH, grow
from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.drafters.table import TableDrafter
from tests.adversaries import UniformChain
from tests.drafting import KEY, LAW, assert_valid, outcome_of, path_probs, reply, shape_of

REPEATABLE = settings(derandomize=True, database=None, deadline=None)


class Place:
    """A cursor over a dict from paths below the root to probabilities."""

    def __init__(self, name, rows, path=()):
        self.name, self.rows, self.path = name, rows, path

    def next_probs(self):
        return self.rows.get(self.path, {})

    def source_of(self, token):
        return self.name

    def child(self, token):
        return Place(self.name, self.rows, (*self.path, token))


class Fixed:
    """Expects the same after every root."""

    num_top_tokens = 0

    def __init__(self, name, rows):
        self.name, self.rows = name, rows
        self.told = []

    def start(self, prompt, law, key):
        self.told.append(("start", list(prompt), key.tolist()))

    def propose(self, root, budget):
        return grow(root, self.cursor(root), budget)

    def update(self, outcome):
        self.told.append(("update", outcome))

    def cursor(self, root):
        return Place(self.name, self.rows)


class Device(Fixed):
    """Hands over a draft that is not evaluated, and knows nothing else."""

    cursor = None

    def __init__(self, name, tokens, parents, probs=None):
        super().__init__(name, {})
        self.tokens, self.parents, self.probs = tokens, parents, probs

    def propose(self, root, budget):
        sources = [self.name] * len(self.tokens)
        return Draft.from_lists([root, *self.tokens], [-1, *self.parents], sources, self.probs)


del Device.cursor
