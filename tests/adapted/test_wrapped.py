"""The overrides of a wrapped model: for us alone, in our thread alone, and missed where one goes.

Dense layers multiply as ours do; parts that are replaced afterwards are noticed.
"""

from threading import Thread

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx_lm.models.cache import make_prompt_cache

from mlxspec.adapted.model import AdaptedModel
from mlxspec.decoder.decoder import Decoder
from mlxspec.device import products
from mlxspec.drafts.tree import DraftTree
from mlxspec.errors import UnsupportedOperationError
from mlxspec.kv.cache import Cache
from mlxspec.loading.examination import examine
from tests.support.tiny_adapted import adapted
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


def test_a_replaced_part_is_named_and_a_new_wrap_overrides_the_new_one():
    source = build("gpt2")  # its learned positions are a layer that can be quantised
    model = AdaptedModel.of(source)
    decoder = decoder_at(model, text_of(8))
    nn.quantize(source, group_size=32, bits=8)
    with pytest.raises(UnsupportedOperationError, match=r"wpe .* wrap the model again"):
        decoder.tree_logits(tree_of(PARENTS))
    again = AdaptedModel.of(source)
    assert again is not model
    assert AdaptedModel.of(source) is again
    assert examine(again).support == "tree"


def test_layers_beside_those_that_are_overridden_may_be_replaced():
    source = build("qwen3")
    model = AdaptedModel.of(source)
    nn.quantize(source.layers[0].mlp, group_size=32, bits=8)
    assert AdaptedModel.of(source) is model
    decoder_at(model, text_of(8)).tree_logits(tree_of(PARENTS))


def test_a_call_of_another_thread_sees_no_forward_of_ours():
    model, tokens = adapted("lfm2"), mx.array([[3, 1, 4, 1, 5]])
    want = model.source(tokens, cache=make_prompt_cache(model.source))
    mx.eval(want)
    got = []

    def plain():
        got.append(model.source(tokens, cache=make_prompt_cache(model.source)))
        mx.eval(got)

    decoder = Decoder(model, Cache.for_model(model.config))
    decoder.observe([2, 7, 1])
    stage = decoder.cache.stage

    def stage_while_another_calls(*args):
        thread = Thread(target=plain)
        thread.start()
        thread.join()
        return stage(*args)

    decoder.cache.stage = stage_while_another_calls
    decoder.forward_tree(DraftTree.from_lists([3, 1, 4, 1, 5], [-1, 0, 0, 1, 2]))
    assert mx.array_equal(got[0], want)
