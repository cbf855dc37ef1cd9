"""Verification on the host: its law, its draws and its way down the tree, past reached nodes."""

import numpy as np
import pytest

from mlxspec.device import backend
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.reply import pending
from mlxspec.trace.events import DraftVerified
from mlxspec.verify.noise import BLOCK
from mlxspec.verify.on_host import HOST, draw, probs_of, top_tokens, walk
from tests.support.adversaries import AlwaysRight, RandomTrees, UniformChain
from tests.support.exact_distribution import paths_of
from tests.support.pairwise import each_value
from tests.support.tiny import make_engine, tiny_model
from tests.verify.test_exact import MATCHED, SAMPLING, VOCAB, FilteredDistributions, replies

# ---- the law; most of it is in `test_distribution` -------------------------------------------


@each_value(spread=[0.0, 0.01, 3.0, 12.0], mass=[0.1, 0.5, 0.9, 0.99, 0.999999, 1 - 2**-24])
def test_top_p_keeps_what_a_sort_of_all_tokens_keeps(spread, mass):
    """A flat law too, where nearly all tokens are kept; whole numbers, so that many are tied."""
    random = np.random.default_rng(int(10 * spread))
    for logits in (random.normal(size=4000) * spread, random.integers(-4, 4, 4000) * spread):
        probs = HOST.softmax(logits.astype(np.float32))
        ordered = np.sort(probs)[::-1].astype(np.float64)
        count = int((np.cumsum(ordered) - ordered < np.float32(mass)).sum())
        expected = probs >= np.float32(ordered[count - 1])
        np.testing.assert_array_equal(HOST.are_nucleus(probs, mass), expected)


def test_top_p_keeps_rare_tokens_where_rounding_left_too_little_to_the_others():
    probs = np.full(4000, 5e-12, np.float32)
    probs[7] = 1 - 1e-7
    assert HOST.are_nucleus(probs, 1 - 2**-24).all()
    assert np.flatnonzero(HOST.are_nucleus(probs, 0.9)).tolist() == [7]


@each_value(sampling=SAMPLING, damage=[np.nan, np.inf, -np.inf])
def test_what_is_no_number_has_no_probability(sampling, damage):
    probs = probs_of(SAMPLING[sampling], np.full(300, damage, np.float32))
    assert np.isnan(probs[draw(probs, np.zeros(BLOCK + 3, np.float32))])
    assert np.isnan(top_tokens(np.full((1, 300), damage, np.float32), 2)[1]).all()


def test_of_tied_tokens_the_best_is_that_with_the_lowest_id():
    walked = walk([0], [-1], np.float32([[0, 5, 5, 1]]), SamplingParams(temperature=0), None)
    assert walked.bonus_token == 1


# ---- the way down ----------------------------------------------------------------------------


def forced(tokens, num_levels):
    """Noise under which the target draws given tokens, one at each depth."""
    rows = np.zeros((num_levels, VOCAB), np.float32)
    for depth, token in enumerate(tokens[:num_levels]):
        rows[depth, token] = 1e6
    return rows


@each_value(name=MATCHED, sampling=SAMPLING)
def test_a_tree_goes_as_far_as_the_targets_own_draws(name, sampling):
    """With the probabilities of NumPy; rows that are not reached hold no numbers."""
    p, paths = FilteredDistributions(9, SAMPLING[sampling], zeros=True), paths_of(*MATCHED[name])
    tokens, parents = MATCHED[name]
    adjusted = SamplingParams(temperature=1.0)  # what is left to do after penalties and bias
    has_filters = not (SAMPLING[sampling].has_penalties or SAMPLING[sampling].logit_bias)
    law = SAMPLING[sampling] if has_filters else adjusted
    for drawn, said in replies(p, tokens, parents):
        logits = np.full((len(tokens), VOCAB), np.nan, np.float32)
        for node, path in enumerate(paths):
            if path == said[: len(path)]:
                with np.errstate(divide="ignore"):
                    logits[node] = p.logits(path) if has_filters else np.log(np.float32(p(path)))
        walked = walk(tokens, parents, logits, law, forced(drawn, len(drawn)))
        assert [paths[node] for node in walked.path] == [said[:i] for i in range(len(said))]
        assert walked.bonus_token == said[-1]
        assert walked.from_residual == (walked.path[-1] in parents)
        for node in (*walked.path[1:], -1):
            path = paths[node] if node > 0 else said
            assert walked.target_probs[node] == pytest.approx(p(path[:-1])[path[-1]], abs=1e-5)


def test_of_two_equal_siblings_the_first_is_taken():
    logits = np.zeros((4, 3), np.float32)
    walked = walk([0, 1, 1, 2], [-1, 0, 0, 2], logits, SAMPLING["temperature"], forced([1, 2], 3))
    assert (walked.path, walked.bonus_token) == ([0, 1], 2)


def test_a_path_deeper_than_the_noise_ends():
    """A drafter may state a depth that its tree does not have; its draft is refused later."""
    logits, noise = np.zeros((3, 3), np.float32), forced([1], 1)
    walked = walk([0, 1, 1], [-1, 0, 1], logits, SAMPLING["temperature"], noise)
    assert (walked.path, walked.bonus_token) == ([0, 1, 2], 1)


# ---- through the engine ----------------------------------------------------------------------

MODEL = tiny_model(vocab_size=200)
PROMPT = [3, 7, 1, 3, 7, 1]
LAWS = {
    "greedy": SamplingParams(),
    "temperature": SamplingParams(temperature=0.9),
    "filters": SamplingParams(temperature=1.2, top_p=0.8, top_k=60, min_p=0.02),
    "penalties": SamplingParams(temperature=1.1, repetition_penalty=1.3, top_p=0.9),
}


@pytest.mark.parametrize("law", LAWS)
def test_a_seed_has_the_text_of_the_device(law, monkeypatch):
    params = GenerationParams(max_tokens=14, num_draft_tokens=6, sampling=LAWS[law], seed=5)
    texts, syncs = [], []
    for is_host in (True, False):
        monkeypatch.setattr(backend, "verifies_on_host", lambda is_host=is_host: is_host)
        for drafter in (RandomTrees(200), AlwaysRight(texts[0])) if texts else (RandomTrees(200),):
            engine = make_engine(MODEL, drafter)
            *events, finished = engine.generate(PROMPT, params)
            emits = [event.emit for event in events if hasattr(event, "emit")]
            texts.append([*PROMPT, *(token.token for emit in emits for token in emit)])
            syncs.append(finished.stats["host_syncs"] / finished.stats["target_forwards"])
    assert texts[0] == texts[1] == texts[2]
    assert syncs == [1, 1, 1]


def test_a_drawn_draft_is_judged_by_its_own_rule(monkeypatch):
    """The match rule would keep its law too, and accept less of it."""
    monkeypatch.setattr(backend, "verifies_on_host", lambda: True)
    monkeypatch.setattr(pending, "walk", None)
    params = GenerationParams(max_tokens=12, num_draft_tokens=3, sampling=LAWS["temperature"])
    events = list(make_engine(MODEL, UniformChain(200)).generate(PROMPT, params))
    assert any(isinstance(event, DraftVerified) for event in events)
