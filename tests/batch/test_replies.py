"""Batches: every reply is the one that its prompt gets alone, and ends in its own way.

Greedy tokens are compared with the target computed anew in NumPy, sampled ones with an engine that
replies to one prompt after the other.
"""

from dataclasses import replace
from functools import cache

import pytest

from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.errors import ContextLengthError
from mlxspec.params import GenerationParams, SamplingParams
from tests.support.adversaries import RandomTrees
from tests.support.batches import (
    DRAFTERS,
    MODEL,
    MODELS,
    PROMPTS,
    REPLIES,
    SAMPLING,
    batch,
    one_by_one,
    seen,
    tokens_of,
)
from tests.support.pairwise import each_value
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.truth import Target


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


@each_value(batch_size=[1, 4, 9], count=[0, 1, 7])
def test_any_number_of_prompts_streams_through_any_number_of_places(count, batch_size):
    params = GenerationParams(max_tokens=8)
    replies = batch("random trees", PROMPTS[:count], params, batch_size=batch_size)
    assert tokens_of(replies) == [reply[:8] for reply in REPLIES["llama"][:count]]


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


@pytest.mark.parametrize("full_layers", [0, 1])
def test_layers_with_windows_see_their_latest_tokens_alone(full_layers):
    model = tiny_model(
        "qwen2", use_sliding_window=True, sliding_window=5, max_window_layers=full_layers
    )
    assert any(model.config.layer_windows)
    replies = batch("random trees", params=GenerationParams(max_tokens=10), model=model)
    assert tokens_of(replies) == [Target(model).greedy(prompt, 10) for prompt in PROMPTS]


# ---- ends ------------------------------------------------------------------------------------


def letters(tokens):
    return "".join(chr(ord("a") + token) for token in tokens)


@pytest.mark.parametrize("drafter", ["none", "pool"])
def test_every_reply_ends_in_its_own_way(drafter):
    model = tiny_model(max_position_embeddings=38)
    replies = REPLIES["llama"]
    params = [
        GenerationParams(max_tokens=1),
        GenerationParams(max_tokens=24, stop=(letters(replies[1][4:7]),)),
        GenerationParams(max_tokens=17),
        GenerationParams(max_tokens=24, sampling=SamplingParams(temperature=0.7), seed=4),
        GenerationParams(max_tokens=24, num_draft_tokens=0),
        GenerationParams(max_tokens=24),  # the context is full before
        GenerationParams(max_tokens=5, stop=("?",)),
    ]
    found = seen(batch(drafter, params=params, model=model))
    assert found == one_by_one(drafter, PROMPTS, params, model=model)
    reasons = ["length", "stop", "length", "length", "length", "context", "length"]
    assert [reason for _, _, reason in found] == reasons
    assert found[1][1] == letters(replies[1]).split(letters(replies[1][4:7]))[0]


def test_a_stop_token_ends_the_replies_that_say_it_and_no_others():
    engine = make_engine(MODEL, DRAFTERS["always right"]())
    stop = REPLIES["llama"][2][3]
    engine.tokenizer.eos_token_ids = (stop,)
    replies = list(engine.generate_batch(PROMPTS, GenerationParams(max_tokens=18), batch_size=4))
    ends = [full.index(stop) + 1 if stop in full else 18 for full in REPLIES["llama"]]
    assert tokens_of(replies) == [full[:n] for full, n in zip(REPLIES["llama"], ends, strict=True)]
    reasons = ["stop" if stop in full else "length" for full in REPLIES["llama"]]
    assert [reply.finish_reason for reply in replies] == reasons
    assert len(set(reasons)) == 2


@pytest.mark.parametrize("cancelled", [(0,), (0, 2), (1, 2, 3), tuple(range(7))])
def test_some_or_all_can_be_cancelled_before_they_begin(cancelled):
    engine = make_engine(MODEL, DRAFTERS["pool"]())
    params = GenerationParams(max_tokens=8)
    replies = engine.generate_batch(
        PROMPTS, params, batch_size=4, should_stop=lambda index: index in cancelled
    )
    for reply, full in zip(replies, REPLIES["llama"], strict=True):
        assert list(reply.tokens) == ([] if reply.index in cancelled else full[:8])
        assert reply.finish_reason == ("cancelled" if reply.index in cancelled else "length")


def test_replies_come_before_later_prompts_are_read():
    engine = make_engine(MODEL, DRAFTERS["none"]())
    asked = set()
    replies = engine.generate_batch(
        PROMPTS, GenerationParams(max_tokens=4), batch_size=2, should_stop=asked.add
    )
    assert next(replies).index == 0
    assert max(asked) == 1  # the other one of the batch


# ---- neighbours ------------------------------------------------------------------------------


def test_the_engine_goes_on_with_its_own_conversation():
    engine = make_engine(MODEL, DRAFTERS["pool"]())
    params = GenerationParams(max_tokens=9)
    drafter = engine.drafter
    first = emitted(engine.generate(PROMPTS[0], params))
    history = engine.target.history
    replies = engine.generate_batch(PROMPTS, params, batch_size=3)
    early = [next(replies)]
    assert engine.target.history == history
    assert engine.drafter is drafter
    assert emitted(engine.generate([*PROMPTS[0], *first], params)) == REPLIES["llama"][0][9:18]
    assert tokens_of([*early, *replies]) == [reply[:9] for reply in REPLIES["llama"]]


def test_figures_are_those_of_each_reply():
    replies = batch("always right", params=GenerationParams(max_tokens=12), rows_per_round=16)
    for prompt, reply in zip(PROMPTS, replies, strict=True):
        assert reply.stats["prompt_tokens"] == len(prompt)
        assert reply.stats["generated_tokens"] == len(reply.tokens) == 12
        assert reply.stats["accepted"] + reply.stats["target_forwards"] >= 12
        assert reply.stats["generation_tps"] > 0


# ---- what is refused before anything is read -------------------------------------------------


@pytest.mark.parametrize(
    ("prompts", "settings", "message"),
    [
        (PROMPTS, {"batch_size": 0}, "batch_size must be 1 or more; got 0"),
        (PROMPTS, {"rows_per_round": 0}, "rows_per_round must be 1 .* or more; got 0"),
        ("abc", {}, "a list of prompts; got one text"),
        ([[1], []], {}, "prompt 1 is empty: give at least one token"),
        ([[1], [2, 24]], {}, "prompt 1 does not fit: token 24 is not in the vocabulary of 0 to 23"),
        ([[1]], {"params": [GenerationParams()] * 2}, "got 2 settings for 1 prompts: give one for"),
    ],
)
def test_refuses_what_cannot_be_done_before_anything_is_read(prompts, settings, message):
    engine = make_engine(MODEL, DRAFTERS["none"]())
    with pytest.raises(ValueError, match=message):
        engine.generate_batch(prompts, **settings)


def test_refuses_a_prompt_longer_than_the_context():
    engine = make_engine(tiny_model(max_position_embeddings=16), DRAFTERS["none"]())
    with pytest.raises(ContextLengthError, match="prompt 2 has 19 tokens; the model takes 16"):
        engine.generate_batch(PROMPTS)


@pytest.mark.parametrize(
    "drafter", [RandomTrees(24), PoolDrafter([SuffixDrafter(), RandomTrees(24)])]
)
def test_refuses_a_drafter_that_cannot_be_made_anew(drafter):
    engine = make_engine(MODEL, DRAFTERS["none"]())
    with pytest.raises(ValueError, match=r"the drafter 'adversary' .* a method `fresh`"):
        engine.generate_batch(PROMPTS, drafter=drafter)
