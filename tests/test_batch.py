"""Batches: every reply is the one that its prompt gets alone, whoever stands beside it.

Greedy tokens are compared with the target computed anew in NumPy, sampled ones with plain draws by
hand, and everything else with an engine that replies to one prompt after the other.
"""

from functools import cache

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.api import HOST_DRAFTERS
from mlxspec.batch.decoder import BatchDecoder
from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.errors import ContextLengthError, UnsupportedOperationError
from mlxspec.events import GenerationFinished
from mlxspec.law import Law
from mlxspec.noise import Noise
from mlxspec.params import GenerationParams
from tests.adversaries import AlwaysRight, AlwaysWrong, Duplicates, RandomTrees, UniformChain
from tests.tiny import emitted, make_engine, tiny_model
from tests.tiny_heads_eagle import eagle3_drafter
from tests.tiny_heads_exit import exit_engine
from tests.tiny_heads_medusa import medusa_drafter
from tests.truth import Target

VOCAB = 24
PROMPTS = [
    [int(token) for token in np.random.default_rng(length).integers(0, VOCAB, length)]
    for length in (8, 1, 19, 3, 2, 30, 11)
]
MODELS = {family: tiny_model(family, vocab_size=VOCAB) for family in ("llama", "qwen2")}
MODEL = MODELS["llama"]
TARGETS = {family: Target(model) for family, model in MODELS.items()}
REPLIES = {
    family: [target.greedy(prompt, 24) for prompt in PROMPTS] for family, target in TARGETS.items()
}
FULL = {
    tuple(prompt): prompt + reply for prompt, reply in zip(PROMPTS, REPLIES["llama"], strict=True)
}


def for_each_sequence(kind, *args):
    """The class of an adversary, made so that every sequence gets one of its own."""

    class Own(kind):
        def fresh(self):
            return Own(*args)

    return Own(*args)


class KnowsReplies:
    """Takes the text that its adversary knows from the prompt."""

    def __init__(self):
        super().__init__(None)

    def start(self, prompt, law, key):
        super().start(prompt, law, key)
        self.text = FULL[tuple(prompt)]


class Right(KnowsReplies, AlwaysRight):
    """Right about every reply."""


class Wrong(KnowsReplies, AlwaysWrong):
    """Wrong about every reply."""


DRAFTERS = {
    **HOST_DRAFTERS,
    "always right": lambda: for_each_sequence(Right),
    "always wrong": lambda: for_each_sequence(Wrong),
    "random trees": lambda: for_each_sequence(RandomTrees, VOCAB),
    "duplicates": lambda: for_each_sequence(Duplicates, VOCAB),
    "drawn chains": lambda: for_each_sequence(UniformChain, VOCAB),
}
LAWS = {
    "temperature": Law(temperature=0.8),
    "filters": Law(temperature=0.9, top_k=9, top_p=0.9, min_p=0.02),
    "penalties": Law(temperature=1.0, repetition_penalty=1.3, presence_penalty=0.4),
}


def batch(drafter="none", prompts=PROMPTS, params=None, *, kind="full", model=MODEL, **sizes):
    engine = make_engine(model, DRAFTERS[drafter](), kind)
    settings = {"batch_size": 4, "rows_per_round": 24, **sizes}
    return list(engine.generate_batch(prompts, params, **settings))


def one_by_one(drafter, prompts, params, *, kind="full", model=MODEL):
    """(tokens, text, reason) of each prompt, replied to by an engine of its own."""
    replies = []
    for prompt, own in zip(prompts, params, strict=True):
        engine = make_engine(model, DRAFTERS[drafter](), kind)
        events = list(engine.generate(prompt, own))
        pieces = [token.text for event in events for token in getattr(event, "emit", ())]
        end = events[-1]
        assert isinstance(end, GenerationFinished)
        replies.append((tuple(emitted(events)), "".join([*pieces, end.text]), end.reason))
    return replies


def seen(replies):
    assert [reply.index for reply in replies] == list(range(len(replies)))
    assert [reply.fault for reply in replies] == [""] * len(replies)
    return [(reply.tokens, reply.text, reply.finish_reason) for reply in replies]


def tokens_of(replies):
    return [list(reply.tokens) for reply in replies]


# ---- the same tokens -------------------------------------------------------------------------


@pytest.mark.parametrize("family", MODELS)
@pytest.mark.parametrize("drafter", [name for name in DRAFTERS if "always" not in name])
def test_greedy_replies_are_those_of_the_target_recomputed(drafter, family):
    params = GenerationParams(max_tokens=24)
    assert tokens_of(batch(drafter, params=params, model=MODELS[family])) == REPLIES[family]


@pytest.mark.parametrize("drafter", ["always right", "always wrong"])
def test_right_and_wrong_drafts_change_the_forwards_alone(drafter):
    replies = batch(drafter, params=GenerationParams(max_tokens=24), rows_per_round=4 * 6)
    assert tokens_of(replies) == REPLIES["llama"]
    lengths = {reply.stats["mean_acceptance_length"] for reply in replies[:4]}
    assert lengths == ({6.0} if drafter == "always right" else {1.0})


@pytest.mark.parametrize("count", [0, 1, 4, 7])
@pytest.mark.parametrize("batch_size", [1, 4, 9])
def test_any_number_of_prompts_streams_through_any_number_of_places(count, batch_size):
    params = GenerationParams(max_tokens=12)
    replies = batch("random trees", PROMPTS[:count], params, batch_size=batch_size)
    assert tokens_of(replies) == [reply[:12] for reply in REPLIES["llama"][:count]]


def sampled(law):
    return [
        GenerationParams(max_tokens=6 + 3 * seed, law=LAWS[law], seed=seed, num_draft_tokens=5)
        for seed in range(len(PROMPTS))
    ]


@cache
def plain_samples(law, kind):
    return one_by_one("none", PROMPTS, sampled(law), kind=kind)


@pytest.mark.parametrize(
    ("law", "kind"), [("temperature", "int8"), ("filters", "full"), ("penalties", "int4")]
)
@pytest.mark.parametrize("drafter", ["none", "pool", "random trees"])
def test_sampled_replies_are_those_of_one_by_one_decoding_with_the_same_seeds(drafter, law, kind):
    assert seen(batch(drafter, params=sampled(law), kind=kind)) == plain_samples(law, kind)


@pytest.mark.parametrize("law", ["filters", "penalties"])
def test_chains_that_are_drawn_are_judged_as_in_one_by_one_decoding(law):
    expected = one_by_one("drawn chains", PROMPTS, sampled(law))
    assert expected != plain_samples(law, "full")
    assert seen(batch("drawn chains", params=sampled(law))) == expected


def test_sampled_replies_are_draws_by_hand():
    law, target = LAWS["filters"], TARGETS["llama"]
    params = [GenerationParams(max_tokens=8, law=law, seed=seed) for seed in range(7)]
    for seed, reply in enumerate(batch("random trees", params=params)):
        text = list(PROMPTS[seed])
        for token in reply.tokens:
            with np.errstate(divide="ignore"):
                scores = np.log(target.law(tuple(text), law, len(PROMPTS[seed])))
            noise = Noise.of_seed(seed).at(len(text)).gumbel(1, VOCAB)[0]
            assert token == (scores + np.array(noise)).argmax()
            text.append(token)


def test_repeated_prompts_with_seeds_of_their_own_get_replies_of_their_own():
    params = [GenerationParams(max_tokens=20, law=LAWS["temperature"], seed=s) for s in (1, 2, 1)]
    first, second, again = batch("pool", [PROMPTS[0]] * 3, params)
    assert first.tokens == again.tokens != second.tokens


@pytest.mark.parametrize("windows", [{"sliding_window": 5}, {"sliding_window": 5, "layers": 1}])
def test_layers_with_windows_see_their_latest_tokens_alone(windows):
    full_layers = windows.get("layers", 0)
    model = tiny_model(
        "qwen2", use_sliding_window=True, sliding_window=5, max_window_layers=full_layers
    )
    assert any(model.config.layer_windows)
    replies = batch("random trees", params=GenerationParams(max_tokens=16), model=model)
    assert tokens_of(replies) == [Target(model).greedy(prompt, 16) for prompt in PROMPTS]


# ---- ends ------------------------------------------------------------------------------------


def letters(tokens):
    return "".join(chr(ord("a") + token) for token in tokens)


@pytest.mark.parametrize("drafter", ["none", "always right", "pool"])
def test_every_reply_ends_in_its_own_way(drafter):
    model = tiny_model(max_position_embeddings=38)
    replies = REPLIES["llama"]
    params = [
        GenerationParams(max_tokens=1),
        GenerationParams(max_tokens=24, stop=(letters(replies[1][4:7]),)),
        GenerationParams(max_tokens=17),
        GenerationParams(max_tokens=24, law=Law(temperature=0.7), seed=4),
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
    engine.tokenizer.eos_token_ids = (REPLIES["llama"][2][3],)
    stop = engine.tokenizer.eos_token_ids[0]
    replies = list(engine.generate_batch(PROMPTS, GenerationParams(max_tokens=24), batch_size=4))
    for reply, full in zip(replies, REPLIES["llama"], strict=True):
        end = full.index(stop) + 1 if stop in full else 24
        assert list(reply.tokens) == full[:end]
        assert reply.finish_reason == ("stop" if stop in full else "length")
    assert len({reply.finish_reason for reply in replies}) == 2


@pytest.mark.parametrize("drafter", ["none", "random trees"])
def test_cancelling_one_reply_leaves_the_others_as_they_are(drafter):
    engine = make_engine(MODEL, DRAFTERS[drafter]())
    asked = []

    def should_stop(index):
        asked.append(index)
        return index == 2 and asked.count(2) > 4

    params = GenerationParams(max_tokens=24, num_draft_tokens=3)
    replies = list(engine.generate_batch(PROMPTS, params, batch_size=4, should_stop=should_stop))
    assert [reply.finish_reason == "cancelled" for reply in replies] == [i == 2 for i in range(7)]
    assert 0 < len(replies[2].tokens) < 24
    for reply, full in zip(replies, REPLIES["llama"], strict=True):
        assert list(reply.tokens) == full[: len(reply.tokens)]
        assert reply.index == 2 or len(reply.tokens) == 24


def test_all_can_be_cancelled_before_they_begin():
    engine = make_engine(MODEL, DRAFTERS["none"]())
    replies = list(engine.generate_batch(PROMPTS, should_stop=lambda index: True))
    assert [(reply.tokens, reply.text) for reply in replies] == [((), "")] * 7
    assert {reply.finish_reason for reply in replies} == {"cancelled"}


def test_replies_come_before_later_prompts_are_read():
    engine = make_engine(MODEL, DRAFTERS["none"]())
    asked = set()
    replies = engine.generate_batch(
        PROMPTS, GenerationParams(max_tokens=4), batch_size=2, should_stop=asked.add
    )
    assert next(replies).index == 0
    assert max(asked) == 3  # two that are over, and two in their places


# ---- one forward, one wait -------------------------------------------------------------------


class Spy(BatchDecoder):
    """Notes how wide the trees of every forward are, and its rows."""

    widths: list  # of all instances: a test looks at one batch

    def forward_trees(self, trees):
        Spy.widths.append([tree.n_nodes for tree in trees])
        return super().forward_trees(trees)


@pytest.fixture
def widths(monkeypatch):
    Spy.widths = []
    monkeypatch.setattr("mlxspec.batch.run.BatchDecoder", Spy)
    return Spy.widths


def test_a_round_is_one_forward_for_all(widths):
    batch("none", PROMPTS[:4], GenerationParams(max_tokens=9))
    assert widths == [[1] * 4] * 9


def test_places_are_filled_as_long_as_prompts_wait_and_then_the_batch_shrinks(widths):
    lengths = [2, 5, 9, 3, 4, 4, 1]
    batch("none", params=[GenerationParams(max_tokens=length) for length in lengths])
    assert [len(row) for row in widths] == [4] * 6 + [2] + [1] * 2


@pytest.mark.parametrize(("rows", "nodes"), [(1, 0), (4, 0), (7, 0), (8, 1), (15, 2), (100, 5)])
def test_drafts_share_the_rows_of_a_round(rows, nodes, widths):
    params = GenerationParams(max_tokens=13, num_draft_tokens=5)
    batch("always right", PROMPTS[:4], params, rows_per_round=rows)
    assert max(max(row) for row in widths) == 1 + nodes


@pytest.mark.parametrize("drafter", ["none", "pool", "random trees"])
def test_a_round_waits_for_the_device_once(drafter, widths, monkeypatch):
    engine = make_engine(MODEL, DRAFTERS[drafter]())
    params = GenerationParams(max_tokens=12, num_draft_tokens=3)
    replies = engine.generate_batch(PROMPTS[:4], params, batch_size=4)
    waits = []
    monkeypatch.setattr("mlxspec.batch.decoder.mx.eval", lambda *arrays: waits.append(1))
    monkeypatch.setattr("mlxspec.backend.sync", mx.eval)
    real = mx.async_eval

    def evaluated(*arrays):
        waits.append(1)
        real(*arrays)
        mx.synchronize()

    monkeypatch.setattr(mx, "eval", evaluated)
    next(replies)
    joins = 4
    reads = sum(len(prompt) > 1 for prompt in PROMPTS[:4]) * 2  # chunks, each in two steps
    leaves = len({len(row) for row in widths}) - 1
    assert len(waits) - joins - reads - leaves == len(widths)


# ---- what is left alone ----------------------------------------------------------------------


def test_the_engine_goes_on_with_its_own_conversation():
    engine = make_engine(MODEL, DRAFTERS["pool"]())
    params = GenerationParams(max_tokens=10)
    drafter = engine.drafter
    first = emitted(engine.generate(PROMPTS[0], params))
    history = engine.target.history
    replies = engine.generate_batch(PROMPTS, params, batch_size=3)
    early = [next(replies)]
    assert engine.target.history == history
    assert engine.drafter is drafter
    assert emitted(engine.generate([*PROMPTS[0], *first], params)) == REPLIES["llama"][0][10:20]
    assert tokens_of([*early, *replies]) == [reply[:10] for reply in REPLIES["llama"]]


def test_a_drafter_that_breaks_down_costs_its_drafts_alone():
    class Frail(RandomTrees):
        name = "frail"

        def fresh(self):
            return Frail(VOCAB)

        def propose(self, root, budget):
            if len(self.tokens) > 12:
                raise RuntimeError("no memory")
            return super().propose(root, budget)

    engine = make_engine(MODEL, Frail(VOCAB))
    params = GenerationParams(max_tokens=24, num_draft_tokens=3)
    replies = list(engine.generate_batch(PROMPTS[:3], params))
    assert tokens_of(replies) == REPLIES["llama"][:3]
    assert [reply.fault for reply in replies] == ["no memory"] * 3
    assert all(reply.stats["rounds"] for reply in replies[:2])
    assert all(reply.stats["plain_forwards"] for reply in replies)


def test_figures_are_those_of_each_reply():
    replies = batch("always right", params=GenerationParams(max_tokens=12), rows_per_round=16)
    for prompt, reply in zip(PROMPTS, replies, strict=True):
        assert reply.stats["prompt_tokens"] == len(prompt)
        assert reply.stats["generated_tokens"] == len(reply.tokens) == 12
        assert reply.stats["accepted"] + reply.stats["target_forwards"] >= 12
        assert reply.stats["generation_tps"] > 0


# ---- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompts", "settings", "message"),
    [
        (PROMPTS, {"batch_size": 0}, "batch_size must be 1 or more; got 0"),
        (PROMPTS, {"rows_per_round": 0}, "rows_per_round must be 1 .* or more; got 0"),
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


def test_refuses_one_text_in_place_of_a_list():
    with pytest.raises(TypeError, match="a list of prompts; got one text"):
        make_engine(MODEL, DRAFTERS["none"]()).generate_batch("abc")


def test_refuses_a_rotating_cache():
    engine = make_engine(MODEL, DRAFTERS["none"](), "rotating")
    message = r"rotating 12 \(2 kept\): load the model without max_kv_size"
    with pytest.raises(UnsupportedOperationError, match=message):
        engine.generate_batch(PROMPTS)


NEEDING_MORE = {
    "medusa": lambda engine: medusa_drafter(engine.target),
    "eagle3": lambda engine: eagle3_drafter(engine.target),
    "exit": lambda engine: exit_engine(MODEL).drafter,
}


@pytest.mark.parametrize("name", NEEDING_MORE)
@pytest.mark.parametrize("is_pooled", [False, True])
def test_refuses_drafters_that_need_more_than_the_text(name, is_pooled):
    engine = make_engine(MODEL, DRAFTERS["none"]())
    drafter = NEEDING_MORE[name](engine)
    engine.drafter = PoolDrafter([SuffixDrafter(), drafter]) if is_pooled else drafter
    message = f"the drafter '{name}' needs more than the text.* a batch takes 'none', 'suffix', "
    with pytest.raises(ValueError, match=message):
        engine.generate_batch(PROMPTS)
