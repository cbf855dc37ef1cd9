"""Early exit: what it says, what law it draws from, when it stops, and what it costs."""

from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.device import backend
from mlxspec.drafters.early_exit import ExitHead
from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.heads.file import HeadCheckpoint
from mlxspec.params import GenerationParams, SamplingParams
from tests.support.drafting import DraftSpy
from tests.support.pairwise import each_value
from tests.support.row_count import RowCount
from tests.support.tiny import make_cache, tiny_model
from tests.support.tiny_heads_exit import ExitTruth, exit_drafter, exit_engine, exit_head
from tests.support.truth import exact_distribution

PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
LENGTH = 20
GREEDY = SamplingParams()
REDUCED = [1, 2, 3, 5, 7, 8, 11, 12, 13, 17, 20, 23]
MODELS = {family: tiny_model(family, num_hidden_layers=3) for family in ("llama", "qwen2")}
MODEL = MODELS["llama"]
SAMPLED = {
    "temperature": SamplingParams(temperature=0.8),
    "all filters": SamplingParams(temperature=1.1, top_k=9, top_p=0.9, min_p=0.02),
    "penalties": SamplingParams(
        temperature=1.0, repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.3
    ),
    "bias": SamplingParams(temperature=1.0, logit_bias={2: 1.5, 5: -3.0}),
}


def drafter_after(prompt, sampling=GREEDY, *, model=MODEL, kind="full", seed=0, **options):
    """A drafter in a reply to `prompt`, whose last token is the root."""
    decoder = Decoder(model, make_cache(model, kind))
    decoder.observe(prompt[:-1])
    drafter = exit_drafter(decoder, **options)
    drafter.start(prompt, sampling, mx.random.key(seed))
    return drafter


def drafted(draft):
    return draft.tree.tokens.tolist()[1:]


# ---- what it says --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head", [{"layer": 1}, {"layer": 2, "target_ids": REDUCED}, {"num_blocks": 3}], ids=str
)
@pytest.mark.parametrize(("family", "kind"), [("llama", "full"), ("qwen2", "rotating")])
def test_the_greedy_chain_is_what_the_exit_says_of_each_prefix(family, kind, head):
    model, text = MODELS[family], PROMPT + PROMPT
    drafter = drafter_after(text, model=model, kind=kind, threshold=1e-6, **head)
    truth = ExitTruth(model, drafter.head, (12, 2) if kind == "rotating" else None)
    draft = drafter.propose(text[-1], 8)
    expected, probs = list(text), []
    for _ in range(4):
        probs.append(truth.confidence(tuple(expected)))
        expected.append(int(np.argmax(truth.logits(tuple(expected)))))
    assert drafted(draft) == expected[len(text) :]
    assert draft.tree.parents.tolist() == [-1, 0, 1, 2, 3]
    assert draft.sources == ("exit",) * 4
    assert draft.sampled_from is None
    np.testing.assert_allclose(draft.node_probs, probs, rtol=1e-3)


def test_the_greedy_chain_minds_bias_and_penalties():
    sampling = SamplingParams(repetition_penalty=1.4, presence_penalty=0.5, logit_bias={2: 2.0})
    drafter = drafter_after(PROMPT, sampling, threshold=1e-6)
    truth, tokens, probs = ExitTruth(MODEL, drafter.head), list(PROMPT), []
    for _ in range(4):
        logits = truth.logits(tuple(tokens))
        chosen = int(np.argmax(exact_distribution(logits, sampling, tokens, tokens[len(PROMPT) :])))
        probs.append(np.exp(logits[chosen]) / np.exp(logits).sum())
        tokens.append(chosen)
    draft = drafter.propose(PROMPT[-1], 4)
    assert drafted(draft) == tokens[len(PROMPT) :]
    np.testing.assert_allclose(draft.node_probs, probs, rtol=1e-3)
    assert min(probs) < 0.5  # not the exit's first choice: the law's


@pytest.mark.parametrize(("lookahead", "budget"), [(1, 9), (3, 9), (9, 2), (9, 0)])
def test_the_chain_is_as_long_as_lookahead_and_budget_allow(lookahead, budget):
    drafter = drafter_after(PROMPT, threshold=1e-6, lookahead=lookahead)
    assert len(drafted(drafter.propose(PROMPT[-1], budget))) == min(lookahead, budget)


def test_a_draft_that_nobody_verified_does_not_stand_in_the_way_of_the_next():
    drafter = drafter_after(PROMPT, threshold=1e-6)
    first = drafted(drafter.propose(PROMPT[-1], 4))
    assert drafted(drafter.propose(PROMPT[-1], 4)) == first


# ---- when it stops -------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [0.2, 0.4, 0.6, 0.8, 0.95])
def test_the_chain_ends_where_the_largest_probability_falls_below_the_threshold(threshold):
    long = drafter_after(PROMPT, threshold=1e-6, lookahead=12)
    truth, chain = ExitTruth(MODEL, long.head), drafted(long.propose(PROMPT[-1], 12))
    sure = [truth.confidence((*PROMPT, *chain[:i])) >= threshold for i in range(12)]
    drafter = drafter_after(PROMPT, threshold=threshold, lookahead=12)
    assert drafted(drafter.propose(PROMPT[-1], 12)) == chain[: [*sure, False].index(False)]


def test_whether_a_token_is_drafted_does_not_depend_on_which_it_is():
    sampling = SamplingParams(temperature=2.0)
    truth = ExitTruth(MODEL, exit_head(MODEL))
    threshold = truth.confidence(tuple(PROMPT)) - 0.01
    drafter = drafter_after(PROMPT, sampling, threshold=threshold, lookahead=1)
    probs = []
    for seed in range(40):
        drafter.start(PROMPT, sampling, mx.random.key(seed))
        probs += drafter.propose(PROMPT[-1], 1).node_probs.tolist()
    assert len(probs) == 40
    assert min(probs) < threshold / 2


# ---- the law it draws from -----------------------------------------------------------------


@each_value(kind=["full", "rotating"], sampling=SAMPLED)
def test_the_law_handed_over_is_that_of_the_exit_after_each_prefix(sampling, kind, monkeypatch):
    target_ids = REDUCED if kind == "rotating" else None
    spy = DraftSpy(monkeypatch)
    engine = exit_engine(MODEL, kind, target_ids=target_ids, threshold=0.1)
    truth = ExitTruth(MODEL, engine.drafter.head, (12, 2) if kind == "rotating" else None)
    params = GenerationParams(max_tokens=14, num_draft_tokens=5, sampling=SAMPLED[sampling], seed=3)
    tokens, num_drafted = list(PROMPT), 0
    for event in engine.generate(PROMPT, params):
        if event.t not in ("verify", "plain"):
            continue
        draft, chain = spy.drafts[-1], drafted(spy.drafts[-1])
        for node in range(len(chain)):
            prefix = (*tokens, *chain[:node])
            exact = exact_distribution(
                truth.logits(prefix), SAMPLED[sampling], prefix, prefix[len(PROMPT) :]
            )
            np.testing.assert_allclose(draft.sampled_from[node], exact, atol=2e-4)
            assert draft.node_probs[node] == draft.sampled_from[node, chain[node]] > 0
        num_drafted += len(chain)
        tokens += [token.token for token in event.emit]
    assert num_drafted > 8


# ---- whole replies -------------------------------------------------------------------------


def test_every_verified_node_passes_every_layer_once():
    engine = exit_engine(MODEL, layer=2)
    params = GenerationParams(max_tokens=LENGTH, num_draft_tokens=6)
    with RowCount(3) as count:
        events = list(engine.generate(PROMPT, params))
    drafts = [len(event.nodes) for event in events if event.t == "draft"]
    rounds = sum(event.t in ("verify", "plain") for event in events)
    assert sum(drafts) > 4
    assert count.rows == [len(PROMPT) - 1 + rounds + sum(drafts)] * 3


def test_drafting_waits_for_the_device_once_per_token_and_once_to_stop():
    for threshold, waits in ((1e-6, 4), (1.0, 1)):
        drafter = drafter_after(PROMPT, threshold=threshold)
        before = backend.host_syncs()
        drafter.propose(PROMPT[-1], 4)
        assert backend.host_syncs() == before + waits


# ---- what it refuses -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 0.0}, "threshold must be more than 0 and at most 1; got 0"),
        ({"threshold": 1.5}, "got 1.5"),
        ({"lookahead": 0}, "lookahead must be 1 or more; got 0"),
    ],
)
def test_a_number_out_of_range_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        exit_drafter(Decoder(MODEL), **options)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"rms_norm_eps": 0.0}, {"threshold": 0.0}, {"threshold": 1.5}, {"num_blocks": -1}),
        *({"layer": 3}, {"layer": None}, {"intermediate_size": "x"}),
    ],
    ids=str,
)
def test_the_config_of_a_checkpoint_is_checked(wrong):
    own = exit_head(MODEL)
    config, target = {**own.config, "threshold": 0.25}, MODEL.config
    head = HeadCheckpoint("exit", config, own.tensors, "h", {})
    assert ExitHead.of_head(head, target, mx.float32).threshold == 0.25
    with pytest.raises(UnsupportedModelError, match=next(iter(wrong))):
        ExitHead.of_head(replace(head, config=config | wrong), target, mx.float32)
