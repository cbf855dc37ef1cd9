"""The target's law against Hugging Face's and mlx-lm's, penalties against a loop, and draws.

Every law is that of the device, and of the host where that verifies.
"""

import json
from collections import Counter
from itertools import product
from typing import get_args

import mlx.core as mx
import mlx_lm.sample_utils
import numpy as np
import pytest

from mlxspec.device import backend, core_split, exponential
from mlxspec.drafts.tree import DraftTree
from mlxspec.params import FilterOrder, SamplingParams
from mlxspec.verify import on_host
from mlxspec.verify.distribution import NodeDistributions, TokenCounts, adjust, top_tokens
from mlxspec.verify.noise import BLOCK, draw, gumbel, gumbel_of
from tests.support.pairwise import each_value
from tests.support.paths import GOLDENS
from tests.support.truth import draw_by_hand

GOLDENS = json.loads((GOLDENS / "sampling.json").read_text())


def law_of_device(sampling, adjusted):
    return np.array(NodeDistributions(sampling, *[mx.array(adjusted)] * 2).probs)


def law_of_host(sampling, adjusted):
    return np.array([on_host.probs_of(sampling, row) for row in np.float32(adjusted)])


on_both = pytest.mark.parametrize("law", [law_of_device, law_of_host])


def golden(name):
    """A case of Hugging Face: its settings, its logits, and these after penalties and bias."""
    case = GOLDENS[name]
    bias = {int(token): value for token, value in case["law"].get("logit_bias", {}).items()}
    sampling, logits = (
        SamplingParams(**case["law"] | {"logit_bias": bias}),
        mx.array(case["logits"]),
    )
    counts = TokenCounts.of(case["prompt"], logits.shape[1]).add(case["reply"])
    return sampling, logits, adjust(sampling, logits, counts)


# ---- the law -------------------------------------------------------------------------------


@on_both
@pytest.mark.parametrize("name", GOLDENS)
def test_the_law_is_that_of_hugging_face(name, law):
    sampling, logits, adjusted = golden(name)
    expected = np.array(GOLDENS[name]["probs"])
    probs = law(sampling, adjusted)
    np.testing.assert_allclose(probs, expected, atol=2e-6)
    np.testing.assert_array_equal(probs > 1e-30, expected > 1e-30)
    tokens = expected.argsort(axis=1)[:, -3]
    distributions = NodeDistributions(sampling, logits, adjusted)
    shown = distributions.prob_of(mx.array([1, 0]), mx.array(tokens[::-1].copy()))
    np.testing.assert_allclose(shown, expected[[1, 0], tokens[::-1]], atol=2e-6)


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


TIED = mx.random.randint(-3, 3, (60, 30), key=mx.random.key(4)).astype(mx.float32)


@on_both
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_law_is_that_of_mlx_lm_in_its_order(settings, law, monkeypatch):
    for seed, spread in product(range(3), (0.5, 2.0, 6.0)):
        logits = spread * mx.random.normal((40, 50), key=mx.random.key(seed))
        ours = law(our_sampling(settings), logits)
        assert variation(ours, their_distribution(logits, settings, monkeypatch)) < 1e-5


@on_both
@pytest.mark.parametrize(
    "settings", [one for one in SETTINGS if not {"top_k", "min_tokens_to_keep"} & {*one}], ids=str
)
def test_the_law_is_that_of_mlx_lm_among_tied_tokens(settings, law, monkeypatch):
    ours = law(our_sampling(settings), TIED)
    assert variation(ours, their_distribution(TIED, settings, monkeypatch)) < 1e-5


@on_both
@pytest.mark.parametrize("more", [{}, {"top_p": 0.9}], ids=str)
def test_of_tied_tokens_top_k_keeps_as_many_as_mlx_lm_of_the_same_mass(more, law, monkeypatch):
    """Which of them mlx-lm keeps is left to its partition."""
    settings = {"temp": 0.8, "top_k": 4, **more}
    ours = np.sort(law(our_sampling(settings), TIED))
    theirs = np.sort(their_distribution(TIED, settings, monkeypatch))
    np.testing.assert_allclose(ours, theirs, atol=2e-6)


def test_logits_of_half_precision_are_read_as_float32():
    logits = mx.array([[1.0, 2.0, -3.0]], mx.bfloat16)
    probs = NodeDistributions(SamplingParams(temperature=0.7), logits).probs
    expected = np.exp(np.array([1.0, 2.0, -3.0]) / 0.7)
    assert probs.dtype == mx.float32
    np.testing.assert_allclose(probs[0], expected / expected.sum(), atol=1e-6)


def test_at_temperature_0_all_mass_is_on_the_most_probable_token_with_the_lowest_id():
    logits = mx.array([[0.0, 5.0, 5.0, 1.0], [7.0, 5.0, 7.0, 7.0]])
    distributions = NodeDistributions(SamplingParams(), logits)
    assert distributions.probs.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]
    assert distributions.best().tolist() == distributions.draw(mx.zeros((2, 4))).tolist() == [1, 0]


def test_at_temperature_0_the_shown_probability_is_that_at_temperature_1():
    logits = np.array([[0.3, 2.0, -1.0]])
    shown = NodeDistributions(SamplingParams(), mx.array(logits)).prob_of(
        mx.array([0]), mx.array([0])
    )
    expected = np.exp(logits[0]) / np.exp(logits[0]).sum()
    np.testing.assert_allclose(shown, expected[:1], atol=1e-6)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(("num_nodes", "num_split_cores"), [(1, 2), (5, 0), (5, 2)])
def test_the_vocabulary_s_exponentials_are_computed_once(
    temperature, num_nodes, num_split_cores, monkeypatch
):
    computed = []
    monkeypatch.setattr(backend, "num_split_cores", lambda: num_split_cores)
    monkeypatch.setattr(core_split, "_split", core_split._CoreSplit())
    monkeypatch.setattr(core_split, "set_blas_threads", lambda threads: None)
    monkeypatch.setattr(backend, "lacks_accelerate", lambda: True)
    monkeypatch.setattr(exponential, "exp", lambda x: (computed.append(x.size), mx.exp(x))[1])
    logits = mx.random.normal((num_nodes, 40), key=mx.random.key(1))
    distributions = NodeDistributions(SamplingParams(temperature=temperature), logits)
    nodes = mx.arange(num_nodes)
    drawn = distributions.draw(gumbel(num_nodes, 40, mx.random.key(2)))
    shown, (_, top) = distributions.prob_of(nodes, drawn), distributions.top_tokens(40)
    expected = mx.softmax(logits, axis=-1)
    np.testing.assert_allclose(shown, expected[nodes, drawn], rtol=1e-5)
    np.testing.assert_allclose(top, -mx.sort(-expected, axis=-1), rtol=1e-5)
    assert sum(computed) == logits.size


@pytest.mark.parametrize(
    "sampling", [SamplingParams(temperature=1e-5), SamplingParams(temperature=1e-5, top_p=0.9)]
)
def test_the_smallest_temperature_takes_the_most_probable_token(sampling):
    distributions = NodeDistributions(sampling, mx.array([[200.0, 300.0, -400.0]]))
    assert distributions.probs.tolist() == [[0, 1, 0]]
    assert distributions.draw(gumbel(1, 3, mx.random.key(0))).item() == 1


@on_both
@pytest.mark.parametrize("order", get_args(FilterOrder))
@pytest.mark.parametrize(
    ("logits", "k", "kept"),
    [
        ([1.0, 3.0, 1.0, 0.0, 1.0], 2, [0, 1]),
        ([1.0, 3.0, 1.0, 0.0, 1.0], 3, [0, 1, 2]),
        ([2.0, 2.0, 2.0, 2.0, 2.0], 4, [0, 1, 2, 3]),
        ([0.0, 0.0, 3.0, 3.0, 3.0], 1, [2]),
    ],
)
def test_top_k_keeps_k_tokens_and_of_tied_ones_the_lowest_ids(logits, k, kept, order, law):
    sampling = SamplingParams(temperature=0.7, top_k=k, filter_order=order)
    probs = law(sampling, [logits, logits[::-1]])
    assert np.flatnonzero(probs[0]).tolist() == kept
    assert (probs > 0).sum(axis=1).tolist() == [k, k]


def test_the_best_of_one_token_is_the_token_of_temperature_0():
    """Logits so near have one probability; the best of them is still the best."""
    logits = mx.array([[-1.0, 1e-9, 2e-9, 0.0]])
    assert len(set(mx.softmax(logits)[0, 1:].tolist())) == 1
    assert NodeDistributions(SamplingParams(temperature=1.0, top_k=1), logits).probs.tolist() == [
        [0, 0, 1, 0]
    ]
    assert NodeDistributions(SamplingParams(), logits).best().item() == 2


@pytest.mark.parametrize(
    ("values", "settled"),
    [
        ({"temperature": 1e-8}, {"temperature": 0.0}),
        ({"temperature": 1e-45}, {"temperature": 0.0}),  # would divide to infinity
        ({"top_k": -1}, {"top_k": 0}),
    ],
)
def test_what_other_programs_send_for_greedy_or_for_off_is_taken_as_that(values, settled):
    assert SamplingParams(**values) == SamplingParams(**settled)


@on_both
@pytest.mark.parametrize("order", get_args(FilterOrder))
@pytest.mark.parametrize("top_p", [0.0, 1e-60])  # the other one is 0 in float32
def test_the_smallest_top_p_keeps_the_most_probable_tokens(top_p, order, law):
    sampling = SamplingParams(temperature=1.0, top_p=top_p, filter_order=order)
    probs = law(sampling, [[1.0, 3.0, 2.0], [3.0, 0.0, 3.0]])
    assert probs.tolist() == [[0, 1, 0], [0.5, 0, 0.5]]


@pytest.mark.parametrize("token", [8, 100_000])
def test_refuses_a_bias_for_a_token_outside_the_vocabulary(token):
    with pytest.raises(ValueError, match=f"names token {token}; allowed are 0 to 7"):
        NodeDistributions(SamplingParams(logit_bias={3: 1.0, token: 1.0}), mx.zeros((2, 8)))


@pytest.mark.parametrize(
    "stated",
    [
        {"temperature": 0.0},
        {"temperature": 0.0, "top_p": 0.9, "presence_penalty": -1.0, "logit_bias": {3: 1.0}},
        {"temperature": 1.0, "min_p": 0.1, "xtc_probability": 0.5, "filter_order": "mlx-lm"},
    ],
)
def test_settings_that_are_not_neutral_are_told(stated):
    assert SamplingParams(**stated).describe() == stated


# ---- what stands before a node -------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_each_node_is_penalised_for_its_own_path(seed):
    random = np.random.default_rng(seed)
    parents = [-1, *(int(random.integers(0, node)) for node in range(1, 12))]
    tokens = random.integers(0, 6, 12).tolist()  # few tokens, so that paths repeat them
    prompt, reply = [1, 1, 4], [2, 5, tokens[0]]
    tree = DraftTree(mx.array(tokens, mx.int32), mx.array(parents, mx.int32))
    counts = TokenCounts.of(prompt, 9).add(reply).along(tree)
    for node in range(12):
        drafted, above = [], node
        while above > 0:
            drafted.append(tokens[above])
            above = parents[above]
        in_reply, in_context = Counter(reply + drafted), Counter(prompt + reply + drafted)
        assert counts.in_reply[node].tolist() == [in_reply[token] for token in range(9)]
        assert counts.in_context[node].tolist() == [in_context[token] for token in range(9)]


# ---- draws ---------------------------------------------------------------------------------


def several(n_rows, width, count, seed=9):
    """Noise for so many draws per row."""
    return mx.split(gumbel(count * n_rows, width, mx.random.key(seed)), count)


@pytest.mark.parametrize(
    "sampling", [SamplingParams(temperature=1.5), SamplingParams(temperature=1.5, min_p=0.01)]
)
def test_draws_follow_the_law(sampling):
    logits = np.array([2.0, 1.0, 0.0, -1.0, 1.5])
    expected = np.exp(logits / 1.5) / np.exp(logits / 1.5).sum()
    distributions = NodeDistributions(sampling, mx.broadcast_to(mx.array(logits), (40_000, 5)))
    drawn = distributions.draw(gumbel(40_000, 5, mx.random.key(2)))
    shares = np.bincount(np.array(drawn), minlength=5) / 40_000
    np.testing.assert_allclose(shares, expected, atol=4 * np.sqrt(0.25 / 40_000))


def test_further_draws_follow_the_law_without_replacement():
    p = np.array([0.5, 0.3, 0.15, 0.05])
    distributions = NodeDistributions(
        SamplingParams(temperature=1.0), mx.broadcast_to(mx.log(mx.array(p)), (40_000, 4))
    )
    pairs = np.array(distributions.draw_several(several(40_000, 4, 2)))
    shares = np.bincount(pairs @ [4, 1], minlength=16).reshape(4, 4) / 40_000
    expected = np.outer(p / (1 - p), p) * (1 - np.eye(4))
    np.testing.assert_allclose(shares, expected, atol=4 * np.sqrt(0.25 / 40_000))


def test_noise_follows_the_gumbel_law():
    noise = np.sort(np.array(gumbel_of(mx.random.uniform(shape=(100_000,), key=mx.random.key(7)))))
    below = np.exp(-np.exp(-noise))  # the share that should lie below each value
    assert np.abs(below - np.arange(100_000) / 100_000).max() < 1.95 / np.sqrt(100_000)


def test_noise_is_fine_enough_for_tokens_below_one_in_ten_million():
    """Of 2**24 values the largest should lie about log(2**24) = 16.6; there mx.random ends."""
    noise = gumbel_of(mx.random.uniform(shape=(1 << 24,), key=mx.random.key(8)))
    counts = [(noise > edge).sum().item() for edge in (15.0, 16.0, 16.7)]
    for count, edge in zip(counts, (15.0, 16.0, 16.7), strict=True):
        expected = (1 << 24) * np.exp(-edge)
        assert abs(count - expected) < 4 * np.sqrt(expected)
    assert counts[-1] > 0
    assert mx.isfinite(noise).all().item()


@pytest.mark.parametrize("uniform", [0.0, 2.0**-32, 1 - 2.0**-24])
def test_no_uniform_draws_a_token_without_mass(uniform, monkeypatch):
    monkeypatch.setattr(mx.random, "uniform", lambda shape, key: mx.full(shape, uniform))
    assert draw(mx.array([[0.0, 1.0, 0.0]]), gumbel(1, 3, mx.random.key(0))).item() == 1


WIDTHS = (50, BLOCK, BLOCK + 1, 3 * BLOCK - 7)


@pytest.mark.parametrize("top_p", [1.0, 0.9])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_draw_is_that_by_hand_and_further_draws_are_of_what_is_left(top_p, width):
    distributions = NodeDistributions(
        SamplingParams(temperature=0.7, top_p=top_p),
        mx.random.normal((3, width), key=mx.random.key(0)) * 2,
    )
    for key in mx.random.split(mx.random.key(6), 40):
        noises = mx.split(gumbel(6, width, key), 2)
        drawn = np.array(distributions.draw_several(noises))
        np.testing.assert_array_equal(distributions.draw(noises[0]), drawn[:, 0])
        for row, tokens in enumerate(drawn):
            probs = np.array(distributions.probs[row])
            assert on_host.draw(probs, np.array(noises[0][row])) == tokens[0]
            for token, noise in zip(tokens, noises, strict=True):
                assert token == draw_by_hand(probs, noise[row])[0]
                probs[token] = 0


@pytest.mark.parametrize("width", WIDTHS)
def test_a_greedy_law_draws_the_best(width):
    distributions = NodeDistributions(
        SamplingParams(), mx.random.normal((3, width), key=mx.random.key(0))
    )
    expected = (-np.array(distributions.logits)).argsort(axis=1)[:, :2]
    np.testing.assert_array_equal(distributions.draw(several(3, width, 1)[0]), expected[:, 0])
    np.testing.assert_array_equal(distributions.draw_several(several(3, width, 2)), expected)


@pytest.mark.parametrize("width", [BLOCK + 1, 3 * BLOCK - 7])
def test_draws_by_blocks_follow_the_law(width):
    """The most probable tokens each for themselves, two of each block, and the rest together."""
    logits = mx.random.normal((width,), key=mx.random.key(1))
    watched = [0, 5, BLOCK - 1, BLOCK, width - 2, width - 1]
    logits = logits.at[mx.array(watched)].add(4.0)
    p = np.exp(np.array(logits, np.float64))
    p /= p.sum()
    distributions = NodeDistributions(
        SamplingParams(temperature=1.0), mx.broadcast_to(logits, (20_000, width))
    )
    counts = np.bincount(
        distributions.draw(gumbel(20_000, width, mx.random.key(3))), minlength=width
    )
    found = np.append(counts[watched], counts.sum() - counts[watched].sum())
    expected = 20_000 * np.append(p[watched], 1 - p[watched].sum())
    assert ((found - expected) ** 2 / expected).sum() < 30  # of 5 or 6 degrees of freedom


def test_where_a_law_has_too_few_tokens_others_follow_them():
    distributions = NodeDistributions(
        SamplingParams(temperature=1.0, top_k=2), mx.array([[1.0, 3.0, 0.0, 2.0]])
    )
    drawn = distributions.draw_several(several(1, 4, 4))[0].tolist()
    assert set(drawn[:2]) == {1, 3}
    assert set(drawn[2:]) == {0, 2}


# ---- the most probable tokens --------------------------------------------------------------


@each_value(k=[1, 3, 8], width=[3, 10, 127, 128, 129, 1000, 1024, 4099])
def test_the_most_probable_tokens_are_those_of_a_full_sort(width, k):
    k = min(k, width)
    random = np.random.default_rng(width)
    logits = 3 * np.stack([random.permutation(width) / width for _ in range(4)])  # no ties
    logits[1, -1] = 5.0  # the best stands in the rest behind the last whole block
    tokens, values = top_tokens(mx.array(logits), k)
    expected = (-logits).argsort(axis=1)[:, :k]
    np.testing.assert_array_equal(tokens, expected)
    np.testing.assert_allclose(values, np.take_along_axis(logits, expected, 1), atol=1e-6)
    tokens, probs = on_host.top_tokens(np.float32(logits), k)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_array_equal(tokens, expected)
    np.testing.assert_allclose(probs, np.take_along_axis(shares, expected, 1), rtol=1e-4)


@pytest.mark.parametrize(
    "sampling", [SamplingParams(), SamplingParams(temperature=3.0, top_k=1, logit_bias={4: 9.0})]
)
def test_the_probabilities_of_the_top_tokens_are_those_before_the_law(sampling):
    logits = np.random.default_rng(1).normal(size=(3, 300)) * 4
    tokens, probs = NodeDistributions(sampling, mx.array(logits)).top_tokens(5)
    expected = (-logits).argsort(axis=1)[:, :5]
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert (tokens.dtype, probs.dtype) == (mx.int32, mx.float32)
    np.testing.assert_array_equal(tokens, expected)
    np.testing.assert_allclose(probs, np.take_along_axis(softmax, expected, 1), atol=1e-6)


def test_the_most_probable_tokens_may_all_stand_in_one_block():
    logits = np.zeros((1, 2048))
    logits[0, 300:308] = np.arange(8, 0, -1)
    tokens, _ = top_tokens(mx.array(logits), 8)
    assert tokens.tolist() == [list(range(300, 308))]
