"""What a cache copies: a round writes its own rows in place and moves no others.

MLX writes into a buffer that nobody else holds and copies the whole of one that somebody does.
Nothing but the memory tells the two apart, so the most that was held during a round is compared
with one array of rows.
"""

import mlx.core as mx
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.device.packed import Quantization
from mlxspec.drafts.tree import DraftTree
from mlxspec.kv.cache import Cache
from mlxspec.kv.storage import RowStore
from tests.support.tiny import tiny_model

HEADS, SIZE, LENGTH = 2, 128, 6000
RINGS = [{}, {"max_size": LENGTH, "keep": 4}]
TREE = DraftTree.from_lists([9, 4, 7], [-1, 0, 0])  # few rows: their scores take memory too


def rows(n):
    return mx.ones((1, HEADS, n, SIZE))


def peak_growth(act):
    """Bytes held at most during an act beyond those held before."""
    mx.synchronize()
    held = mx.get_active_memory()
    mx.reset_peak_memory()
    act()
    mx.synchronize()
    return mx.get_peak_memory() - held


# ---- one store -----------------------------------------------------------------------------


@pytest.mark.parametrize("packing", [None, Quantization(8, 64), Quantization(4, 64)])
def test_writing_and_placing_rows_copies_no_others_but_those_that_somebody_holds_on_to(packing):
    """Why `read` says not to keep what it returns; and what a copy looks like to these tests."""
    store = RowStore(packing)
    store.write(0, rows(LENGTH))
    store.forget()
    mx.eval(store.arrays)

    def a_round():
        """Stage six rows, keep a branch of them, and stage the next six, in one evaluation."""
        store.write(LENGTH, rows(6))
        store.place(mx.array([0, 2, 5]), [(LENGTH, 3)])
        store.forget()
        store.write(LENGTH + 3, rows(6))
        store.forget()
        mx.eval(store.arrays)

    assert peak_growth(a_round) < store.arrays[0].nbytes / 10
    kept = [plane[:, :, :5] for plane in store.arrays]
    mx.eval(kept)
    assert peak_growth(a_round) > store.arrays[0].nbytes / 2


# ---- rounds of a decoder -------------------------------------------------------------------

MODEL = tiny_model(
    num_hidden_layers=2, num_attention_heads=HEADS, num_key_value_heads=HEADS, head_dim=SIZE
)


def filled_decoder(**ring):
    cache = Cache(2, **ring)
    for layer in range(2):
        cache.stage(layer, rows(LENGTH), rows(LENGTH))
    cache.commit(range(LENGTH))
    mx.eval(cache.arrays)
    decoder = Decoder(MODEL, cache)
    decoder.observe([1, 2, 3])  # makes room for the rows to come
    return decoder


def draft(decoder):
    """A chain of lazy tokens, each drawn from the forward before, as a draft model makes it."""
    token, drawn = mx.array([5], mx.int32), []
    for _ in range(4):
        logits = decoder.logits(decoder.extend_chain(token))
        token = mx.argmax(logits[-1:], axis=-1).astype(mx.int32)
        drawn.append(token)
    mx.eval(drawn)
    decoder.commit_chain([5, int(drawn[0])])


def verify(decoder, path):
    """A round as the engine runs it."""
    mx.eval(decoder.logits(decoder.forward_tree(TREE)))
    decoder.commit(path)


ROUNDS = {
    "plain": lambda decoder: decoder.observe([7]),
    "prefix": lambda decoder: verify(decoder, [0, 1]),
    "branch": lambda decoder: verify(decoder, [0, 2]),
    "chain": draft,
}


@pytest.mark.parametrize("ring", RINGS, ids=["full", "rotating"])
@pytest.mark.parametrize("name", ROUNDS)
def test_a_round_copies_no_cache(name, ring):
    decoder = filled_decoder(**ring)
    plane = decoder.cache.arrays[0].nbytes
    growths = [peak_growth(lambda: ROUNDS[name](decoder)) for _ in range(4)]
    assert max(growths) < plane / 2
