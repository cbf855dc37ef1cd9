"""The default model against MLX-LM's Llama on the same float32 weights."""

import dataclasses

import mlx.core as mx
import mlx_lm.models.llama
import numpy as np
import pytest
from mlx.utils import tree_flatten

from mlxspec.loading import load_model
from mlxspec.loading.fetch.default_model import has_default_model
from mlxspec.models import build_model
from tests.support.device_facts import believed
from tests.support.halves import assert_as_near, errors
from tests.support.reference import ConcatCache, path_to, tree_masks

pytestmark = pytest.mark.skipif(
    not has_default_model(), reason="the default model was not downloaded"
)
TEXT = "The old lighthouse keeper climbed the 217 steps every evening, and every evening he"


@pytest.fixture(scope="module")
def loaded():
    with believed("cpu"):  # what would stay packed, or be in half precision, is float32 there
        return load_model()


def mlx_lm_model(model, dtype=mx.float32):
    args = mlx_lm.models.llama.ModelArgs.from_dict(dataclasses.asdict(model.config))
    theirs = mlx_lm.models.llama.Model(args)
    weights = tree_flatten(model.parameters())
    theirs.load_weights([(name, array.astype(dtype)) for name, array in weights], strict=True)
    return theirs


@pytest.fixture(scope="module")
def theirs(loaded):
    return mlx_lm_model(loaded.model)


@pytest.fixture(scope="module")
def tokens(loaded):
    return loaded.tokenizer.encode(TEXT)


def test_a_prompt_gives_the_logits_of_mlx_lm(loaded, theirs, tokens):
    prompt = mx.array([tokens])
    hidden, _ = loaded.model.hidden_states(prompt, ConcatCache(), 0, {None: "causal"})
    logits = np.array(loaded.model.logits(hidden))
    np.testing.assert_allclose(logits, np.array(theirs(prompt)), atol=1e-4)


def test_a_tree_gives_each_node_the_logits_of_mlx_lm_on_its_path(loaded, theirs, tokens):
    model, cache, n_past = loaded.model, ConcatCache(), len(tokens) - 1
    nodes, parents = [tokens[-1], 436, 253, 617, 253], [-1, 0, 0, 1, 1]
    model.hidden_states(mx.array([tokens[:-1]]), cache, 0, {None: "causal"})
    depths = [len(path_to(parents, node)) - 1 for node in range(len(nodes))]
    positions = mx.array(depths, mx.int32) + n_past
    masks = tree_masks(model, n_past, parents)
    hidden, _ = model.hidden_states(mx.array([nodes]), cache, positions, masks)
    logits = np.array(model.logits(hidden)[0])
    for node in range(len(nodes)):
        line = tokens[:-1] + [nodes[other] for other in path_to(parents, node)]
        expected = np.array(theirs(mx.array([line]))[0, -1])
        np.testing.assert_allclose(logits[node], expected, atol=1e-4)


def test_in_bfloat16_a_prompt_is_as_near_to_the_truth_as_in_mlx_lm(loaded, tokens):
    model, prompt = build_model(loaded.config), mx.array([tokens])
    weights = tree_flatten(loaded.model.parameters())
    model.load_weights([(name, array.astype(mx.bfloat16)) for name, array in weights])
    hidden, _ = model.hidden_states(prompt, ConcatCache(), 0, {None: "causal"})
    ours, theirs = model.logits(hidden)[0], mlx_lm_model(model, mx.bfloat16)(prompt)[0]
    assert ours.dtype == theirs.dtype == mx.bfloat16
    truth = np.array(mlx_lm_model(model)(prompt)[0])
    near, as_near = (
        errors(np.array(logits.astype(mx.float32)), truth) for logits in (ours, theirs)
    )
    assert_as_near(near, as_near)
