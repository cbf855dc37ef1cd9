"""Quantised keys and values stay packed where mlx-lm's attention can multiply them so."""

import mlx.core as mx
import pytest
from mlx_lm.models.base import quantized_scaled_dot_product_attention
from mlx_lm.models.cache import QuantizedKVCache

from mlxspec.adapted.model import AdaptedModel
from mlxspec.decoder.decoder import Decoder
from mlxspec.device.packed import PackedRows, Quantization
from mlxspec.drafts.tree import DraftTree
from mlxspec.kv.cache import Cache
from tests.support.reference import path_to
from tests.support.tiny_adapted import adapted, source
from tests.support.zoo import PARENTS, PATH, TOKENS, build, decoder_at, error, tree_of

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
