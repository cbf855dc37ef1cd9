"""The models against MLX-LM's on the same weights in float32."""

import dataclasses

import mlx.core as mx
import mlx_lm.models.llama
import mlx_lm.models.qwen2
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache

from tests.support.golden import NAMES, load_golden
from tests.support.reference import ConcatCache, causal_masks, path_to, tree_masks

# MLX-LM knows no windows in Qwen2 and no Llama in which every layer has one.
UNKNOWN_TO_MLX_LM = {"qwen2_windows", "qwen2_layer_types", "mistral_window"}
SHARED = [name for name in NAMES if name not in UNKNOWN_TO_MLX_LM]


def mlx_lm_model(golden):
    config = golden.config
    module = mlx_lm.models.qwen2 if config.model_type == "qwen2" else mlx_lm.models.llama
    args = dataclasses.asdict(config)
    if any(config.layer_windows):
        args["sliding_window"] = max(filter(None, config.layer_windows))
        args["layer_types"] = [
            "sliding_attention" if window else "full_attention" for window in config.layer_windows
        ]
    model = module.Model(module.ModelArgs.from_dict(args))
    model.load_weights(list(golden.weights.items()), strict=True)
    return model


@pytest.mark.parametrize("name", SHARED)
def test_a_prompt_gives_the_logits_of_mlx_lm(name):
    golden = load_golden(name)
    model, tokens = golden.model(), mx.array([golden.tokens])
    indices = range(len(golden.tokens))
    masks = {None: "causal"}
    if any(golden.config.layer_windows):
        masks = causal_masks(model, indices, indices)
    hidden, _ = model.hidden_states(tokens, ConcatCache(), 0, masks)
    expected = np.array(mlx_lm_model(golden)(tokens))
    np.testing.assert_allclose(np.array(model.logits(hidden)), expected, atol=1e-4)


@pytest.mark.parametrize("name", SHARED)
def test_token_by_token_gives_the_logits_of_mlx_lm(name):
    golden = load_golden(name)
    model, theirs = golden.model(), mlx_lm_model(golden)
    cache, their_cache = ConcatCache(), make_prompt_cache(theirs)
    for index, token in enumerate(golden.tokens):
        masks = {None: None, **causal_masks(model, [index], range(index + 1))}
        hidden, _ = model.hidden_states(mx.array([[token]]), cache, index, masks)
        expected = np.array(theirs(mx.array([[token]]), cache=their_cache))
        np.testing.assert_allclose(np.array(model.logits(hidden)), expected, atol=1e-4)


@pytest.mark.parametrize("name", ["llama_linear", "llama_llama3_new", "llama_yarn", "qwen2_yarn"])
def test_a_tree_gives_each_node_the_logits_of_mlx_lm_on_its_path(name):
    golden = load_golden(name)
    model, theirs, cache = golden.model(), mlx_lm_model(golden), ConcatCache()
    prompt, tokens, parents = golden.tokens[:9], [5, 9, 33, 9, 60, 2], [-1, 0, 0, 2, 2, 3]
    model.hidden_states(mx.array([prompt]), cache, 0, {None: "causal"})
    positions = mx.array([8 + len(path_to(parents, node)) for node in range(6)], mx.int32)
    masks = tree_masks(model, 9, parents)
    hidden, _ = model.hidden_states(mx.array([tokens]), cache, positions, masks)
    logits = np.array(model.logits(hidden)[0])
    for node in range(6):
        line = prompt + [tokens[other] for other in path_to(parents, node)]
        expected = np.array(theirs(mx.array([line]))[0, -1])
        np.testing.assert_allclose(logits[node], expected, atol=1e-4)


@pytest.mark.parametrize("name", ["llama_bias", "qwen2_tied"])
def test_captured_states_are_those_that_enter_the_layers_of_mlx_lm(name):
    golden = load_golden(name)
    model, theirs, tokens = golden.model(), mlx_lm_model(golden), mx.array([golden.tokens])
    first = theirs.model.embed_tokens(tokens)
    second = theirs.model.layers[0](first, "causal")
    last = theirs.model.layers[1](second, "causal")
    masks = {None: "causal"}
    _, captured = model.hidden_states(tokens, ConcatCache(), 0, masks, capture=(2, 0, 1))
    for ours, expected in zip(captured, (last, first, second), strict=True):
        np.testing.assert_allclose(np.array(ours), np.array(expected), atol=1e-4)
