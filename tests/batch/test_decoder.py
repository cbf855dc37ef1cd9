"""Several sequences in one cache: rows, masks and hidden states are those of each one alone."""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.batch.decoder import BatchDecoder
from mlxspec.decoder.decoder import Decoder
from mlxspec.device.packed import Quantization
from mlxspec.drafts.tree import DraftTree
from mlxspec.errors import CacheError
from mlxspec.kv.batch import BatchCache
from mlxspec.kv.cache import Cache
from mlxspec.kv.masks import batch_layout
from tests.support.decoded_text import Reader
from tests.support.decoders import PATH, PATH_TOKENS, TREE, TRUTHS, assert_close
from tests.support.dict_cache import seen
from tests.support.layer_faults import Fault
from tests.support.tiny import make_cache, tiny_model

MODEL = tiny_model()
TEXTS = [[3, 7, 1, 3, 9], [5], [2, 8, 8, 4, 1, 0, 6, 2, 9]]
TRUTH = TRUTHS["llama", "full"]
LONE = DraftTree.from_lists([4], [-1])
CHAIN = DraftTree.from_lists([11, 3, 2], [-1, 0, 1])
TREES = [TREE, LONE, CHAIN]
FULL = [key for key in TRUTHS if key[1] != "rotating"]


def read(texts, family="llama", kind="full"):
    """A batch that has read some texts."""
    model = TRUTHS[family, kind].decoder().model
    decoder = BatchDecoder(model, make_cache(model, kind), len(texts))
    for slot, text in enumerate(texts):
        reader = Decoder(model, make_cache(model, kind))
        reader.observe(text)
        decoder.join(slot, reader.cache)
    return decoder


def rows_of(decoder, slot):
    """(length, n_layers, 2, heads, D) of the committed rows of a sequence."""
    cache, config = decoder.cache, decoder.model.config
    probe = mx.zeros((cache.num_sequences, config.num_key_value_heads, 1, config.head_dim))
    layers = [seen(cache, layer, probe, probe) for layer in range(2)]
    cache.rollback()
    rows = np.array(mx.stack(layers))[:, :, slot, :, : cache.offsets[slot]]
    return rows.transpose(3, 0, 1, 2, 4)


def assert_holds(decoder, texts, truth=TRUTH):
    """The rows of every sequence are those of its text read token by token."""
    assert decoder.cache.offsets == [len(text) for text in texts]
    for slot, text in enumerate(texts):
        expected = truth.rows(text)
        rows = rows_of(decoder, slot)
        assert len(rows) == len(expected)
        for position, row in enumerate(rows):
            np.testing.assert_allclose(row, expected[position], atol=1e-4)


# ---- forwards and commits --------------------------------------------------------------------


@pytest.mark.parametrize(("family", "kind"), FULL)
def test_every_node_says_what_the_target_says_after_its_path(family, kind):
    decoder, truth = read(TEXTS, family, kind), TRUTHS[family, kind]
    hidden = decoder.forward_trees(TREES)
    logits = mx.split(decoder.model.logits(hidden), [6, 7])
    for text, tree, got in zip(TEXTS, TREES, logits, strict=True):
        tokens = tree.tokens.tolist()
        assert got.shape[0] == tree.n_nodes
        for node, on_path in enumerate(tree.ancestors.tolist()):
            path = [token for token, is_on in zip(tokens, on_path, strict=True) if is_on]
            assert_close(got[node], truth([*text, *path]))


@pytest.mark.parametrize(("family", "kind"), FULL)
def test_rows_are_those_of_each_text_alone_round_after_round(family, kind, forwards):
    decoder = read(TEXTS, family, kind)
    texts = [list(text) for text in TEXTS]
    for trees, paths in [
        (TREES, [PATH, [0], [0, 1]]),
        ([LONE, TREE, CHAIN], [[0], [0, 2], [0, 1, 2]]),
        ([CHAIN, CHAIN, LONE], [[], [0], [0]]),
    ]:
        before = forwards.of(decoder.model)
        decoder.forward_trees(trees)
        assert forwards.of(decoder.model) == before + 1
        decoder.commit(paths)
        for text, tree, path in zip(texts, trees, paths, strict=True):
            text += [tree.tokens.tolist()[node] for node in path]
        assert_holds(decoder, texts, TRUTHS[family, kind])
    assert texts[0] == [*TEXTS[0], *PATH_TOKENS, 4]


def test_a_slot_is_taken_over_and_others_are_given_up():
    decoder = read(TEXTS)
    decoder.forward_trees(TREES)
    reader = Decoder(MODEL)
    reader.observe([7, 7, 1])
    decoder.join(2, reader.cache)
    reader.rollback_to(2)  # the cache that was read into a slot goes its own way
    reader.observe([9, 9, 9, 9])
    assert_holds(decoder, [*TEXTS[:2], [7, 7, 1]])
    decoder.keep([2, 0])
    assert_holds(decoder, [[7, 7, 1], TEXTS[0]])
    decoder.forward_trees([LONE, CHAIN])
    decoder.commit([[0], [0, 1]])
    assert_holds(decoder, [[7, 7, 1, 4], [*TEXTS[0], 11, 3]])


def test_a_batch_without_sequences_holds_no_rows():
    decoder = read(TEXTS[2:])
    decoder.keep([])
    assert decoder.cache.num_sequences == 0
    decoder.cache.add(1)  # an empty one has no slots of those before it
    assert sum(array.nbytes for array in decoder.cache.arrays) == 0


def test_readers_of_hidden_states_move_with_their_slot():
    decoder, readers = read(TEXTS), [Reader(), Reader(), Reader()]
    for slot, text in enumerate(TEXTS):
        alone = Decoder(MODEL)
        alone.observe(text)
        decoder.join(slot, alone.cache, [readers[slot]])
    decoder.keep([2, 0])
    hidden = decoder.forward_trees([CHAIN, LONE])
    decoder.commit([[0, 1], [0]])
    assert [reader.tokens for reader in readers] == [[4], [], [11, 3]]
    assert_close(mx.array(np.stack(readers[2].rows)), np.array(hidden[:2]))
    assert_close(mx.array(np.stack(readers[0].rows)), np.array(hidden[3:]))


def test_a_long_text_grows_the_slots_of_all():
    long = [int(token) for token in np.random.default_rng(3).integers(0, 24, 253)]
    decoder = read([[1, 2, 3], long])
    decoder.forward_trees([TREE, CHAIN])
    decoder.commit([PATH, [0, 1, 2]])
    assert_holds(decoder, [[1, 2, 3, *PATH_TOKENS], [*long, 11, 3, 2]])


def test_a_forward_that_fails_leaves_nothing_staged():
    decoder = read(TEXTS)
    with Fault(MemoryError("too little"), layer=1, is_after=False), pytest.raises(MemoryError):
        decoder.forward_trees(TREES)
    assert decoder.cache.num_staged == 0
    assert_holds(decoder, TEXTS)


@pytest.mark.parametrize("packing", [None, Quantization(8, 32)])
def test_rounds_do_not_copy_the_context(packing):
    """Rounds of 8 rows behind 4096: the smallest buffer is 64 times as large as they are."""
    n_tokens = 4096
    one = Cache(1, quantization=packing)
    prompt = mx.zeros((1, 2, n_tokens, 32))
    one.stage(0, prompt, prompt)
    one.commit(range(n_tokens))
    cache = BatchCache(one, 2)
    for sequence in range(2):
        cache.fill(sequence, one)
    rows = mx.ones((2, 2, 8, 32))
    cache.stage(0, rows, rows)
    cache.commit([[0, 2, 5]] * 2)
    mx.eval(rows, cache.arrays)
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    for _ in range(5):
        cache.stage(0, rows, rows)
        mx.eval(cache.arrays)
        cache.commit([[0, 2, 5], [0, 1]])
        mx.eval(cache.arrays)
    smallest_buffer = min(array.nbytes for array in cache.arrays)
    assert mx.get_peak_memory() - before < smallest_buffer / 2


# ---- masks -----------------------------------------------------------------------------------


def test_masks_and_positions_of_two_sequences():
    positions, masks = batch_layout([2, 4], [[-1, 0, 0, 1], [-1, 0, 1, 0]], [None, 3])
    assert positions.tolist() == [[2, 3, 3, 4], [4, 5, 6, 5]]
    everything = [
        ["11100000", "11110000", "11101000", "11110100"],
        ["11111000", "11111100", "11111110", "11111001"],
    ]
    window = [  # of the latest three tokens on the way to a node
        ["11100000", "01110000", "01101000", "00110100"],
        ["00111000", "00011100", "00001110", "00011001"],
    ]
    for key, expected in ((None, everything), (3, window)):
        assert masks[key].shape == (2, 1, 4, 8)
        seen = masks[key][:, 0].astype(mx.int32).tolist()
        assert [["".join(map(str, row)) for row in rows] for rows in seen] == expected


# ---- errors ----------------------------------------------------------------------------------


def test_refuses_trees_and_paths_that_are_not_one_each():
    decoder = read(TEXTS)
    with pytest.raises(ValueError, match="got 2 trees for 3 sequences"):
        decoder.forward_trees([LONE, LONE])
    with pytest.raises(ValueError, match="got 3 paths for 0 staged trees"):
        decoder.commit([[0]] * 3)
    decoder.forward_trees(TREES)
    with pytest.raises(ValueError, match="got 1 paths for 3 staged trees"):
        decoder.commit([[0]])
    decoder.commit([[0]] * 3)
    assert decoder.cache.offsets == [6, 2, 10]


@pytest.mark.parametrize("paths", [[[0, 3], [0], [0]], [[1], [0], [0]], [[0], [0, 1], [0]]])
def test_refuses_a_path_that_leaves_its_branch(paths):
    decoder = read(TEXTS)
    decoder.forward_trees(TREES)
    with pytest.raises(ValueError, match="is not a branch from the root"):
        decoder.commit(paths)
    decoder.commit([PATH, [0], [0, 1]])
    assert_holds(decoder, [TEXTS[0] + PATH_TOKENS, [5, 4], [*TEXTS[2], 11, 3]])


def test_a_cache_refuses_rows_of_another_batch_and_rows_that_are_not_there():
    cache = BatchCache(Cache(1), 3)
    rows = mx.zeros((2, 1, 1, 32))
    with pytest.raises(CacheError, match="rows of 2 sequences do not fit a cache of 3"):
        cache.stage(0, rows, rows)
    rows = mx.zeros((3, 1, 1, 32))
    cache.stage(0, rows, rows)
    with pytest.raises(CacheError, match="got 2 paths for 3 sequences"):
        cache.commit([[0], [0]])
    with pytest.raises(CacheError, match="of 1 staged ones"):
        cache.commit([[0], [1], [0]])
