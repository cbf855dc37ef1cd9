"""Batches: every reply is the one that its prompt gets alone, beside any other reply.

Greedy tokens are compared with the target computed anew in NumPy, sampled ones with plain draws by
hand, and both with an engine that replies to one prompt after the other.
"""

from dataclasses import replace
from functools import cache

import pytest

from mlxspec.params import GenerationParams
from mlxspec.verify.noise import Noise
from tests.support.batches import (
    DRAFTERS,
    MODELS,
    PROMPTS,
    REPLIES,
    SAMPLING,
    TARGETS,
    VOCAB,
    batch,
    one_by_one,
    seen,
    tokens_of,
)
from tests.support.pairwise import each_value
from tests.support.tiny import tiny_model
from tests.support.truth import Target, draw_by_hand


@each_value(drafter=[name for name in DRAFTERS if "always" not in name], family=MODELS)
def test_greedy_replies_are_those_of_the_target_recomputed(drafter, family):
    params = GenerationParams(max_tokens=18)
    assert tokens_of(batch(drafter, params=params, model=MODELS[family])) == REPLIES[family]


@pytest.mark.parametrize("drafter", ["always right", "always wrong"])
def test_right_and_wrong_drafts_change_the_forwards_alone(drafter):
    replies = batch(drafter, params=GenerationParams(max_tokens=18), rows_per_round=4 * 6)
    assert tokens_of(replies) == REPLIES["llama"]
    lengths = {reply.stats["mean_acceptance_length"] for reply in replies[:4]}
    assert lengths == ({6.0} if drafter == "always right" else {1.0})


@each_value(batch_size=[1, 4, 9], count=[0, 1, 4, 7])
def test_any_number_of_prompts_streams_through_any_number_of_places(count, batch_size):
    params = GenerationParams(max_tokens=12)
    replies = batch("random trees", PROMPTS[:count], params, batch_size=batch_size)
    assert tokens_of(replies) == [reply[:12] for reply in REPLIES["llama"][:count]]


def sampled(sampling):
    return [
        GenerationParams(
            max_tokens=4 + 2 * seed, sampling=SAMPLING[sampling], seed=seed, num_draft_tokens=5
        )
        for seed in range(len(PROMPTS))
    ]


@cache
def plain_samples(sampling, kind):
    return one_by_one("none", PROMPTS, sampled(sampling), kind=kind)


@pytest.mark.parametrize(
    ("drafter", "sampling", "kind"),
    [
        ("none", "temperature", "int8"),
        ("pool", "penalties", "int4"),
        ("random trees", "filters", "full"),
        ("random trees", "temperature", "int8"),
    ],
)
def test_sampled_replies_are_those_of_one_by_one_decoding_with_the_same_seeds(
    drafter, sampling, kind
):
    assert seen(batch(drafter, params=sampled(sampling), kind=kind)) == plain_samples(
        sampling, kind
    )


@pytest.mark.parametrize("sampling", ["filters", "penalties"])
def test_chains_that_are_drawn_are_judged_as_in_one_by_one_decoding(sampling):
    expected = one_by_one("drawn chains", PROMPTS, sampled(sampling))
    assert expected != plain_samples(sampling, "full")
    assert seen(batch("drawn chains", params=sampled(sampling))) == expected


@pytest.mark.parametrize("sampling", ["filters", "penalties"])
def test_with_an_exact_seed_chains_that_are_drawn_leave_the_text_of_plain_sampling(sampling):
    params = [replace(own, exact_seed=True) for own in sampled(sampling)]
    assert seen(batch("drawn chains", params=params)) == plain_samples(sampling, "full")


def test_sampled_replies_are_draws_by_hand():
    sampling, target = SAMPLING["filters"], TARGETS["llama"]
    params = [GenerationParams(max_tokens=8, sampling=sampling, seed=seed) for seed in range(7)]
    for seed, reply in enumerate(batch("random trees", params=params)):
        text = list(PROMPTS[seed])
        for token in reply.tokens:
            probs = target.distribution(tuple(text), sampling, len(PROMPTS[seed]))
            noise = Noise.of_seed(seed).at(len(text)).gumbel(1, VOCAB)[0]
            assert token == draw_by_hand(probs, noise)[0]
            text.append(token)


def test_repeated_prompts_with_seeds_of_their_own_get_replies_of_their_own():
    params = [
        GenerationParams(max_tokens=20, sampling=SAMPLING["temperature"], seed=s) for s in (1, 2, 1)
    ]
    first, second, again = batch("pool", [PROMPTS[0]] * 3, params)
    assert first.tokens == again.tokens != second.tokens


@pytest.mark.parametrize("windows", [{"sliding_window": 5}, {"sliding_window": 5, "layers": 1}])
def test_layers_with_windows_see_their_latest_tokens_alone(windows):
    full_layers = windows.get("layers", 0)
    model = tiny_model(
        "qwen2", use_sliding_window=True, sliding_window=5, max_window_layers=full_layers
    )
    assert any(model.config.layer_windows)
    replies = batch("random trees", params=GenerationParams(max_tokens=10), model=model)
    assert tokens_of(replies) == [Target(model).greedy(prompt, 10) for prompt in PROMPTS]
