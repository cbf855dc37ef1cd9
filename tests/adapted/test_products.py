"""The dense layers of an adapted model multiply as ours do, for us alone."""

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn

from mlxspec.adapted.model import AdaptedModel
from mlxspec.device import products
from tests.support.zoo import PARENTS, build, decoder_at, text_of, tree_of


@pytest.fixture
def multiplied(monkeypatch):
    """The layers that were multiplied in pieces, in order."""
    layers, right = [], products.product

    def note(layer, x, **named):
        layers.append(layer)
        return right(layer, x, **named)

    monkeypatch.setattr(products, "product", note)
    return layers


def flip(layer):
    layer.weight = -layer.weight


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_a_tree_multiplies_every_dense_layer_and_the_head_in_pieces(name, cpu, multiplied):
    source = build(name)
    decoder = decoder_at(AdaptedModel.of(source), text_of(8))
    multiplied.clear()
    decoder.tree_logits(tree_of(PARENTS))
    own = [module for module in source.modules() if isinstance(module, nn.Linear)]
    head = source.model.embed_tokens if source.args.tie_word_embeddings else source.lm_head
    assert {id(layer) for layer in [*own, head]} == {id(layer) for layer in multiplied}


def test_calls_of_mlx_lm_are_bit_for_bit_those_of_before(cpu, multiplied):
    tokens = mx.array([text_of(9)])
    source = build("llama")
    before = np.array(source(tokens))
    model = AdaptedModel.of(source)
    multiplied.clear()
    np.testing.assert_array_equal(np.array(source(tokens)), before)
    assert not multiplied
    del model


def test_new_numbers_of_a_layer_are_used(cpu):
    source = build("llama")
    model = AdaptedModel.of(source)
    decoder_at(model, text_of(8)).next_logits()
    flip(source.model.layers[0].mlp.up_proj)
    logits = decoder_at(model, text_of(9)).next_logits()
    plain = source(mx.array([text_of(9)]))[0, -1]
    np.testing.assert_allclose(np.array(logits), np.array(plain), atol=1e-4)
