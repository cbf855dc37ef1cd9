"""A port and mlx-lm's model of the family, adapted, say the same with the same arrays."""

from functools import cache

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from mlxspec.adapted.model import AdaptedModel
from mlxspec.bench.peers import mlx_lm_model
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafts.tree import DraftTree
from tests.support.decoded_text import Reader
from tests.support.golden import load_golden
from tests.support.tiny import make_cache, tiny_model

NAMES = (
    "llama_bias",
    "llama_gqa_tied",
    "llama_linear",
    "llama_llama3_new",
    "llama_yarn",
    "mistral_layer_types",
    "qwen2_tied",
    "qwen2_untied",
    "qwen2_yarn",
    "quantised",
)
EACH = pytest.mark.parametrize("name", NAMES)
TEXT = [5, 9, 33, 9, 60, 2, 41, 17, 9, 33, 9, 60, 2, 11, 40, 7]
# Eight deep: longer than the window of Mistral, which is seven.
TREE = DraftTree.from_lists(
    [7, 50, 23, 11, 50, 3, 60, 31, 5, 12, 44, 23], [-1, 0, 0, 1, 1, 2, 3, 6, 7, 8, 8, 9]
)
PATH = (0, 1, 3, 6, 7)


class Notebook(Reader):
    """Keeps the final states and those that enter layers, above the last one too."""

    name = "notebook"
    capture = (0, 1, 2)

    def read(self, tokens, states):
        self.tokens += tokens
        parts = [states.final, *(states.entering[layer] for layer in self.capture)]
        self.rows += list(np.concatenate([np.array(part) for part in parts], axis=1))


@cache
def twins(name):
    """The port, and mlx-lm's model with its arrays."""
    port = quantised() if name == "quantised" else load_golden(name).model()
    return port, AdaptedModel(mlx_lm_model(port), port.config.eos_token_ids)


def quantised():
    model = tiny_model("qwen2", vocab_size=64)
    nn.quantize(model, group_size=32, bits=4)
    return model


def decoders(name, kind="full"):
    return [Decoder(model, make_cache(model, kind)) for model in twins(name)]


def assert_same(ours, theirs):
    np.testing.assert_allclose(np.array(theirs), np.array(ours), atol=1e-4)


def assert_same_of_each(ask, name, kind="full"):
    assert_same(*(ask(decoder) for decoder in decoders(name, kind)))


def logits_of_trees(decoder):
    """Of `TREE` behind texts of different lengths, where a ring has wrapped as well."""
    said = [decoder.tree_logits(TREE)]
    for stop in (3, 16):
        decoder.observe(TEXT[len(decoder) : stop])
        said.append(decoder.tree_logits(TREE))
    return mx.stack(said)


@EACH
@pytest.mark.parametrize("kind", ["full", "rotating"])
def test_trees_have_the_same_logits(name, kind):
    assert_same_of_each(logits_of_trees, name, kind)


@pytest.mark.parametrize("kind", ["int8", "int4", "rotating-int8"])
def test_trees_have_the_same_logits_where_keys_and_values_are_quantised(kind):
    assert_same_of_each(logits_of_trees, "quantised", kind)


@EACH
def test_hidden_states_are_the_same_for_readers_and_in_any_order_of_layers(name):
    def ask(decoder):
        notebook = Notebook()
        decoder.attach([notebook])
        decoder.observe(TEXT)
        final, captured = decoder.hidden_states([1, 0])
        decoder.forward_tree(TREE)
        decoder.commit(PATH)
        assert len(notebook.rows) == len(TEXT) + len(PATH)
        rows = mx.array(np.stack(notebook.rows))
        return mx.concatenate([part.reshape(-1) for part in (rows, final, *captured)])

    assert_same_of_each(ask, name)


@EACH
def test_embeddings_and_rows_of_the_head_are_the_same(name):
    port, adapted = twins(name)
    hidden = mx.random.normal((3, port.config.hidden_size), key=mx.random.key(1))
    some = mx.array([60, 3, 3, 17], mx.int32)
    assert_same(port.logits(hidden), adapted.logits(hidden))
    assert_same(port.head_rows(some)(hidden), adapted.head_rows(some)(hidden))
    assert_same(port.embed(some), adapted.embed(some))


@EACH
def test_a_config_says_the_same_of_both(name):
    port, adapted = (model.config for model in twins(name))
    for fact in ("vocab_size", "hidden_size", "num_hidden_layers", "num_row_stores", "num_states"):
        assert getattr(adapted, fact) == getattr(port, fact)
    assert adapted.max_position_embeddings == port.max_position_embeddings
    assert adapted.eos_token_ids == port.eos_token_ids
    assert set(adapted.layer_windows) == set(port.layer_windows)
