"""Parts of a wrapped model that are replaced afterwards: noticed, and overridden anew."""

import pytest
from mlx import nn

from mlxspec.adapted.admission import examine
from mlxspec.adapted.model import AdaptedModel
from mlxspec.errors import UnsupportedOperationError
from tests.support.zoo import PARENTS, build, decoder_at, text_of, tree_of


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
