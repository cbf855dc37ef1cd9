"""What a model of mlx-lm is told when it asks a cache of ours for its mask or its rows.

Quantised keys and values stay packed where mlx-lm's attention can multiply them so.
"""

import mlx.core as mx
import pytest
from mlx_lm.models.base import quantized_scaled_dot_product_attention
from mlx_lm.models.cache import KVCache, QuantizedKVCache, RotatingKVCache

from mlxspec.adapted.current import Current
from mlxspec.adapted.leaves import LeafPlan, RowsLeaf
from mlxspec.adapted.model import AdaptedModel
from mlxspec.decoder.decoder import Decoder
from mlxspec.device.packed import PackedRows, Quantization
from mlxspec.drafts.tree import DraftTree
from mlxspec.errors import UnsupportedOperationError
from mlxspec.kv.cache import Cache
from tests.support import zoo
from tests.support.reference import path_to
from tests.support.tiny_adapted import adapted, source
from tests.support.zoo import PARENTS, PATH, TOKENS, build, decoder_at, error, text_of, tree_of

WINDOWED = mx.array([[True, False], [True, True]])


@pytest.fixture
def current():
    current = Current()
    current.offset = 2
    current.cache = Cache(2, windows=(None, 4))
    current.masks = {None: "causal", 4: WINDOWED}
    return current


def test_a_word_stays_a_word(current):
    assert RowsLeaf(current, 0, None).make_mask(3) == "causal"


@pytest.mark.parametrize("word", ["causal", None])
def test_a_word_becomes_an_array_where_a_model_needs_one(current, word):
    current.masks = {None: word}
    mask = RowsLeaf(current, 0, None).make_mask(3, return_array=True)
    assert mask.tolist() == [
        [True, True, True, False, False],
        [True, True, True, True, False],
        [True, True, True, True, True],
    ]


def test_a_window_is_asked_for_or_that_of_the_cache(current):
    full, windowed = RowsLeaf(current, 0, None), RowsLeaf(current, 1, 4)
    assert full.make_mask(2, window_size=4) is WINDOWED
    assert windowed.make_mask(2) is WINDOWED
    assert windowed.make_mask(2, return_array=True) is WINDOWED


def test_a_window_without_a_mask_is_named(current):
    with pytest.raises(UnsupportedOperationError, match="a window of 5 tokens"):
        RowsLeaf(current, 0, None).make_mask(2, window_size=5)


def test_layers_of_one_window_hold_the_rows_of_the_longest_mask_that_any_of_them_asked_for(current):
    """A model asks one of them for the masks of all."""
    current.cache, current.masks = Cache(4), {6: WINDOWED}
    plan = LeafPlan(current)
    leaves = [plan.leaf(cache) for cache in (KVCache(), *map(RotatingKVCache, (4, 4, 5)))]
    leaves[2].make_mask(2, window_size=6)
    assert plan.row_windows == (None, 6, 6, 5)


def test_layers_that_share_rows_get_them_as_the_first_layer_got_them():
    """Each row of a folded forward is a sequence of its own, with all rows of its text."""
    current = Current()
    current.cache, current.folded = Cache(1), (1, 3)
    leaf = RowsLeaf(current, 0, None)
    rows = mx.arange(3.0).reshape(3, 1, 1, 1)
    first = leaf.update_and_fetch(rows, rows + 10)
    for shared in (leaf.keys_and_values(), leaf.state, (leaf.keys, leaf.values)):
        assert [own.shape for own in shared] == [(3, 1, 3, 1)] * 2
        assert [own.tolist() for own in shared] == [own.tolist() for own in first]


def test_attention_is_called_with_as_many_rows_as_a_kernel_of_a_gpu_takes(gpu, monkeypatch):
    source = build("qwen3", num_attention_heads=14, num_key_value_heads=2, head_dim=64)
    truth, calls = zoo.true_logits(source, text_of(8), PARENTS), []
    fused = mx.fast.scaled_dot_product_attention

    def called(queries, *arrays, **more):
        calls.append(queries.shape[2])
        return fused(queries, *arrays, **more)

    monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", called)
    decoder = decoder_at(AdaptedModel(source), text_of(8))
    calls.clear()
    assert error(decoder.tree_logits(tree_of(PARENTS)), truth) < zoo.TOLERANCE
    assert calls == [4, 3] * 4  # 7 rows of 7 queries a key head, in 4 layers
    calls.clear()
    source(mx.array([TOKENS]))
    assert calls == [7] * 4  # mlx-lm's own call


def test_a_text_that_is_forgotten_stays_in_no_leaf():
    decoder = Decoder(AdaptedModel(build("llama")))
    decoder.observe(text_of(400))
    mx.synchronize()
    held, size = mx.get_active_memory(), decoder.cache.nbytes
    decoder.reset()
    assert held - mx.get_active_memory() > 0.9 * size


TEXT = [5, 9, 2, 7, 11, 8, 4, 12, 3, 3, 6]
DRAFTED = [token % 24 for token in TOKENS]
# A number on the edge of two codes may get either, as a BLAS rounds: then logits move so far.
ONE_CODE = {8: 3e-2, 4: 0.3}


def packed_decoder(model, bits):
    packing = Quantization.for_head_dim(bits, model.config.head_dim)
    return Decoder(model, Cache.for_model(model.config, quantization=packing))


@pytest.fixture
def attention(monkeypatch):
    """Counts the calls of mlx-lm's attention over packed rows."""
    calls = []

    def count(*args, **named):
        calls.append(args[0].shape)
        return quantized_scaled_dot_product_attention(*args, **named)

    base = "mlx_lm.models.base.quantized_scaled_dot_product_attention"
    monkeypatch.setattr(base, count)
    return calls


@pytest.fixture
def unpacking(monkeypatch):
    calls = []
    unpacked = PackedRows.unpacked
    monkeypatch.setattr(PackedRows, "unpacked", lambda self: calls.append(1) or unpacked(self))
    return calls


def true_logits(model, tokens, bits):
    """mlx-lm's logits, token by token, over its own quantised cache."""
    cache = [QuantizedKVCache(group_size=32, bits=bits) for _ in model.layers]
    for token in tokens:
        logits = model(mx.array([[token]]), cache=cache)[0, -1]
    return logits


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_tokens_and_drafts_over_packed_rows_are_those_of_mlx_lm(kind, bits, attention, unpacking):
    decoder = packed_decoder(adapted(kind, head_dim=32), bits)
    plain = source(kind, head_dim=32)
    decoder.observe(TEXT[:1])
    unpacking.clear()  # the first forward tries both ways
    for end, token in enumerate(TEXT[1:], 2):
        decoder.observe([token])
        off = error(decoder.next_logits(), true_logits(plain, TEXT[:end], bits))
        assert off < ONE_CODE[bits]
    drafted = decoder.tree_logits(DraftTree.from_lists(DRAFTED, PARENTS))
    for leaf in (PATH[-1], 4, 5):
        path = [DRAFTED[node] for node in path_to(PARENTS, leaf)]
        off = error(drafted[leaf], true_logits(plain, [*TEXT, *path], bits))
        assert off < ONE_CODE[bits]
    assert attention
    assert not unpacking


@pytest.mark.parametrize("name", ["gpt_oss"])  # its attention has sinks
def test_a_model_that_cannot_attend_to_packed_rows_gets_plain_ones(name, unpacking):
    model = AdaptedModel(build(name))
    assert model.config.head_dim % 32 == 0
    decoder = packed_decoder(model, 8)
    decoder.observe(TEXT)
    assert unpacking
    full = decoder_at(model, TEXT)
    got, want = (one.tree_logits(tree_of(PARENTS)) for one in (decoder, full))
    assert error(got, want) < 0.05
