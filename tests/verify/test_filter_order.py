"""The law under mlx-lm's order of filters, against mlx-lm's own functions."""

import itertools

import mlx.core as mx
import mlx_lm.sample_utils
import numpy as np
import pytest

from mlxspec.params import SamplingParams
from mlxspec.verify.distribution import NodeDistributions

SETTINGS = [
    {"temp": 0.7, "top_p": 0.9},
    {"temp": 2.0, "min_p": 0.05},
    {"temp": 1.0, "top_k": 5},
    {"temp": 0.3, "top_p": 0.5, "min_p": 0.2},
    {"temp": 1.7, "top_p": 0.95, "min_p": 0.02, "top_k": 9},
    {"temp": 3.0, "min_p": 0.5, "min_tokens_to_keep": 6},
    {"temp": 3.0, "top_p": 0.6, "min_p": 0.9, "min_tokens_to_keep": 4},
    {"temp": 0.8, "xtc_probability": 0.4},
    {"temp": 1.3, "xtc_probability": 1.0, "xtc_threshold": 0.05, "xtc_special_tokens": [3, 7]},
    {"temp": 0.9, "top_p": 0.9, "min_p": 0.03, "xtc_probability": 0.5, "top_k": 3},
    {"temp": 0.05, "top_p": 0.3, "xtc_probability": 0.2, "xtc_threshold": 0.0},
    {"temp": 1.0, "xtc_probability": 0.7, "xtc_threshold": 0.5},
]


def their_distribution(logits, settings, monkeypatch):
    """(n, V) what mlx-lm's sampler draws from, its coin for XTC counted out."""
    given = []
    monkeypatch.setattr(
        mlx_lm.sample_utils,
        "categorical_sampling",
        lambda logprobs, temp: given.append(np.array(logprobs, np.float64) / temp),
    )
    share = settings.get("xtc_probability", 0.0)
    for coin in (0.0, 1.0):
        theirs = mlx_lm.sample_utils.make_sampler(**{**settings, "xtc_probability": coin})
        theirs(logits - mx.logsumexp(logits, axis=-1, keepdims=True))
    never, always = (np.exp(row - row.max(axis=-1, keepdims=True)) for row in given)
    never, always = (row / row.sum(axis=-1, keepdims=True) for row in (never, always))
    return (1 - share) * never + share * always


def our_sampling(settings):
    settings = dict(settings)
    special = tuple(settings.pop("xtc_special_tokens", ()))
    temperature = settings.pop("temp")
    return SamplingParams(
        temperature, filter_order="mlx-lm", xtc_special_tokens=special, **settings
    )


def variation(ours, theirs):
    return np.abs(np.array(ours, np.float64) - theirs).sum(axis=-1).max() / 2


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_law_is_that_of_mlx_lm(settings, monkeypatch):
    for seed, spread in itertools.product(range(3), (0.5, 2.0, 6.0)):
        logits = spread * mx.random.normal((40, 50), key=mx.random.key(seed))
        ours = NodeDistributions(our_sampling(settings), logits).probs
        assert variation(ours, their_distribution(logits, settings, monkeypatch)) < 1e-5


@pytest.mark.parametrize(
    "settings",
    [setting for setting in SETTINGS if not {"top_k", "min_tokens_to_keep"} & {*setting}],
)
def test_the_law_is_that_of_mlx_lm_among_tied_tokens(settings, monkeypatch):
    """Whole numbers, so that many tokens are tied wherever a filter cuts."""
    logits = mx.random.randint(-3, 3, (60, 30), key=mx.random.key(4)).astype(mx.float32)
    ours = NodeDistributions(our_sampling(settings), logits).probs
    assert variation(ours, their_distribution(logits, settings, monkeypatch)) < 1e-5


@pytest.mark.parametrize("settings", [{"top_k": 4}, {"top_k": 4, "top_p": 0.9}], ids=str)
def test_of_tied_tokens_top_k_keeps_as_many_as_mlx_lm_of_the_same_mass(settings, monkeypatch):
    """Which of them mlx-lm keeps is left to its partition."""
    settings = {"temp": 0.8, **settings}
    logits = mx.random.randint(-3, 3, (60, 30), key=mx.random.key(4)).astype(mx.float32)
    ours = np.sort(NodeDistributions(our_sampling(settings), logits).probs)
    theirs = np.sort(their_distribution(logits, settings, monkeypatch))
    np.testing.assert_allclose(ours, theirs, atol=2e-6)


@pytest.mark.parametrize(
    ("settings", "least"),
    [({"temp": 0.7, "top_p": 0.9}, 0.05), ({"temp": 2.0, "min_p": 0.05}, 0.3)],
)
def test_the_order_of_hugging_face_is_another_law(settings, least, monkeypatch):
    logits = 3 * mx.random.normal((40, 50), key=mx.random.key(0))
    temperature, filters = settings["temp"], {k: v for k, v in settings.items() if k != "temp"}
    ours = NodeDistributions(SamplingParams(temperature, **filters), logits).probs
    assert variation(ours, their_distribution(logits, settings, monkeypatch)) > least
