"""Medusa heads are trained for a model of mlx-lm; kinds that need our own layers refuse it."""

from types import SimpleNamespace

import mlx.core as mx
import mlx.utils
import numpy as np
import pytest
from mlx import nn

from mlxspec.device.core_split import left_to_blas
from mlxspec.errors import UnsupportedOperationError
from mlxspec.train.features import compute_features
from mlxspec.train.kinds import KINDS, Material
from mlxspec.train.methods.medusa import MedusaObjective
from mlxspec.train.weights import dense_head
from tests.support.tiny_adapted import adapted, source
from tests.support.training import conversation

IDS = mx.array([1, 2, 5, 9, 20], mx.int32)


@pytest.mark.parametrize("kind", ["qwen3", "lfm2"])
def test_features_are_what_mlx_lm_computes(kind):
    text = conversation(length=12)
    found = compute_features(adapted(kind), text, (0, 1))
    logits = source(kind)(mx.array(text.tokens)[None])[0]
    probs = np.array(mx.softmax(logits[-2].astype(mx.float32)))
    assert found.top_tokens[-2][0] == probs.argmax()
    assert found.top_probs[-2][0] == pytest.approx(probs.max(), abs=2e-3)
    assert found.entering[1].shape == (12, 32)


def test_the_matrix_of_a_head_that_names_none_is_found():
    head = source("qwen3").lm_head.weight
    np.testing.assert_allclose(
        np.array(dense_head(adapted("qwen3"), IDS)), np.array(head[IDS]), atol=1e-5
    )


def test_a_head_that_caps_its_logits_is_refused():
    with pytest.raises(UnsupportedOperationError, match="does more than multiply"):
        dense_head(adapted("gemma2", final_logit_softcapping=1.0), IDS)


def test_medusa_heads_learn_from_a_model_of_mlx_lm():
    model = adapted("qwen3")
    objective = MedusaObjective(model, IDS, num_heads=2, num_blocks=1)
    features = compute_features(model, conversation(length=20), ())
    learn = nn.value_and_grad(objective.network, lambda: objective.loss(features))
    with left_to_blas():
        loss, slopes = learn()
    weights = objective.network.trainable_parameters()
    stepped = mlx.utils.tree_map(lambda w, g: w - 0.02 * g, weights, slopes)
    objective.network.update(stepped)
    assert objective.loss(features).item() < loss.item()


@pytest.mark.parametrize("kind", ["eagle3", "exit", "draft-model"])
def test_kinds_that_begin_with_layers_of_our_own_say_so(kind, monkeypatch):
    monkeypatch.setattr("mlxspec.train.kinds._check_layers", lambda *_: None)
    model = adapted("qwen3")
    loaded = SimpleNamespace(model=model, config=model.config)
    material = Material(loaded, [], np.zeros(24, np.int64), np.arange(5, dtype=np.int32))
    with pytest.raises(UnsupportedOperationError, match=f"'{kind}' is trained from the weights"):
        KINDS[kind].build(material, {})
