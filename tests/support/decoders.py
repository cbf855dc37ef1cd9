"""Decoders of both families with every kind of cache, and the truth about their target."""

import mlx.core as mx
import numpy as np

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafts.tree import DraftTree
from tests.support.pairwise import each_value
from tests.support.shadow import committed_rows
from tests.support.tiny import make_cache, tiny_model
from tests.support.truth import Target

KINDS = ("full", "rotating", "int8")
FAMILIES = ("llama", "qwen2")
MODELS = {family: tiny_model(family) for family in FAMILIES}


class Truth:
    """The target's logits after a text, and the cache rows of one forward per token."""

    def __init__(self, family, kind):
        self.family, self.kind = family, kind
        self._target = Target(MODELS[family], kind)
        self._rows = {}

    def __call__(self, tokens):
        return self._target.logits(tuple(tokens))

    def rows(self, tokens):
        if tuple(tokens) not in self._rows:
            fresh = self.decoder()
            for token in tokens:
                fresh.observe([token])
            self._rows[tuple(tokens)] = committed_rows(fresh)
        return self._rows[tuple(tokens)]

    def decoder(self):
        return Decoder(MODELS[self.family], make_cache(MODELS[self.family], self.kind))


TRUTHS = {(family, kind): Truth(family, kind) for family in FAMILIES for kind in KINDS}
EACH = each_value(family=FAMILIES, kind=KINDS)

# Texts whose keys and values are at no boundary of int8, where a rounding error is a whole step.
TEXT = [int(token) for token in np.random.default_rng(5).integers(0, 24, 40)]
# 0 -> (1 -> (3 -> 5, 4), 2): branches whose rows are not contiguous.
TREE = DraftTree.from_lists([9, 4, 7, 1, 3, 2], [-1, 0, 0, 1, 1, 3])
PATH, PATH_TOKENS = [0, 1, 3, 5], [9, 4, 1, 2]


def make(family, kind):
    """Return a decoder and the truth about it."""
    truth = TRUTHS[family, kind]
    return truth.decoder(), truth


def assert_close(logits, expected, atol=2e-4):
    np.testing.assert_allclose(np.array(logits), expected, atol=atol)


def read_drafts(decoder, drafts):
    """Append drafts in one forward; return the logits before them and after each of them."""
    first = decoder.last_hidden_state()[None]
    if not drafts:
        return decoder.logits(first)
    states = decoder.forward_tree(DraftTree.chain(mx.array(drafts, mx.int32)))
    decoder.commit(range(len(drafts)))
    return decoder.logits(mx.concatenate([first, states]))


def assert_is_as_if_read_from_nothing(decoder, tokens, truth):
    """History, rows of every layer and next logits are those of `tokens` read token by token."""
    assert decoder.history == tuple(tokens)
    assert len(decoder) == decoder.cache.offset == len(tokens)
    assert decoder.cache.num_staged == 0
    rows, expected = committed_rows(decoder), truth.rows(tokens)
    assert sorted(rows) == sorted(expected)
    for position, row in expected.items():
        np.testing.assert_allclose(rows[position], row, atol=1e-4)
    if tokens:
        assert_close(decoder.next_logits(), truth(tokens))
