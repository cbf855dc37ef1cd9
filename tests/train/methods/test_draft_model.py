"""The student computes in training what a draft model with its config computes."""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.models import ModelConfig, build_model
from mlxspec.train.methods.draft_model import DraftModelObjective
from mlxspec.train.objective import flat
from tests.support.tiny import tiny_model
from tests.support.training import features, mean_chain, with_gap

IDS = np.array([1, 2, 5, 6, 7, 9, 12, 15, 20, 23], np.int32)


@pytest.fixture
def objective():
    mx.random.seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_layers": 2, "head_dim": 16}
    objective = DraftModelObjective(tiny_model(), IDS, np.arange(24), **sizes)
    rows = objective.network.rows
    objective.network.rows = rows + mx.random.normal(rows.shape) * 0.1
    return objective


def test_the_merged_model_has_the_logits_of_the_student(objective):
    tokens = mx.array([3, 1, 20, 4, 7])
    expected = objective.network(tokens)
    decoder = Decoder(objective.network.merged())
    decoder.observe(tokens.tolist())
    got, _ = decoder.hidden_states([])
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_its_weights_build_a_qwen2_model_from_its_config(objective):
    merged = objective.network.merged()
    model = build_model(ModelConfig.from_dict(objective.config))
    model.load_weights(list(flat(merged.parameters()).items()))
    assert (model.config.model_type, model.config.attention_bias) == ("qwen2", True)


def test_frequent_rows_learn_and_the_others_stay(objective):
    trainable = flat(objective.network.trainable_parameters())
    assert "rows" in trainable
    assert not any("embed_tokens" in name for name in trainable)
    before = np.array(objective.network.model.embed(mx.arange(24)))
    after = np.array(objective.network.merged().embed(mx.arange(24)))
    changed = np.flatnonzero((before != after).any(axis=1))
    np.testing.assert_array_equal(changed, IDS)


def test_the_embedding_keeps_the_frequent_tokens_products():
    counts = np.zeros(24)
    counts[:16] = 1e6  # as many frequent tokens as directions: nothing of them is lost
    target = tiny_model()
    objective = DraftModelObjective(
        target, IDS, counts, hidden_size=16, intermediate_size=16, num_layers=1, head_dim=16
    )
    full = np.array(target.embed(mx.arange(16)))
    small = np.array(objective.network.model.embed(mx.arange(16)))
    np.testing.assert_allclose(small @ small.T, full @ full.T, rtol=1e-3, atol=1e-3)


def test_the_loss_is_the_cross_entropy_against_the_stated_probabilities(objective):
    given = features(length=12, prompt=4)
    probs = mx.softmax(
        objective.network(mx.array(given.tokens[:-1])) @ objective.network.rows.T, axis=-1
    )
    expected = 0.0
    for place in range(3, 11):
        known = [
            (list(IDS).index(token), float(prob))
            for token, prob in zip(given.top_tokens[place], given.top_probs[place], strict=True)
            if token in IDS
        ]
        mass = sum(prob for _, prob in known)
        expected -= sum(prob / mass * np.log(probs[place, row].item()) for row, prob in known)
    np.testing.assert_allclose(objective.loss(given).item(), expected, rtol=1e-4)


def test_no_chain_leaves_its_answer(objective):
    given = with_gap(features(length=60, prompt=4), 30, 40)
    objective.network.rows = objective.network.rows * 0
    objective.network.rows[IDS.tolist().index(7)] = mx.ones(32)  # says 7, or else the first row
    given.tokens[4:] = [(7, 1)[place % 5 == 0] for place in range(56)]
    probs = np.array(objective.network(mx.array(given.tokens[:-1])) @ objective.network.rows.T)
    hits = IDS[probs.argmax(axis=1)] == given.tokens[1:]
    expected = mean_chain([hits] * 4, [*range(3, 29), *range(39, 59)])
    assert expected > 1
    assert objective.evaluate([given])["mean_acceptance_length"] == pytest.approx(expected)


@pytest.mark.parametrize("sizes", [(128, 64), (48, 32), (32, 0), (0, 16)])
def test_a_width_that_cannot_be_is_refused(sizes):
    hidden_size, head_dim = sizes
    with pytest.raises(ValueError, match="multiple of head_dim, and 64, the target's"):
        DraftModelObjective(
            tiny_model(), IDS, np.arange(24), hidden_size=hidden_size, head_dim=head_dim
        )
