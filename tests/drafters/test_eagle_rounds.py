"""The EAGLE drafters in the engine: lossless, honest about what was drawn, and without a wait."""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.decoder.hidden import HiddenStates
from mlxspec.device import backend
from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.table.drafter import TableDrafter
from mlxspec.drafts.round import Round
from mlxspec.engine.engine import Engine
from mlxspec.params import GenerationParams, SamplingParams
from tests.support.drafting import DraftSpy
from tests.support.eagle_reference import ReferenceDrafter, paths_of
from tests.support.pairwise import each_value
from tests.support.tiny import ToyTokenizer, emitted, tiny_model
from tests.support.tiny_heads_eagle import EAGLE_DRAFTERS, TARGET_IDS, eagle3_network, eagle_network
from tests.support.truth import Target, exact_distribution

PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
LENGTH = 20  # with the prompt well past the ring of 12
MODEL = tiny_model("llama")
TARGET = Target(MODEL)
SAMPLING = {
    "temperature": SamplingParams(temperature=0.8),
    "all filters": SamplingParams(temperature=0.9, top_k=9, top_p=0.9, min_p=0.02),
    "penalties": SamplingParams(temperature=1.0, repetition_penalty=1.3, presence_penalty=0.4),
    "bias": SamplingParams(temperature=1.0, logit_bias={2: 1.5, 5: -3.0, 6: 2.0}),
}
EACH = pytest.mark.parametrize("name", EAGLE_DRAFTERS)


def make(name, **settings):
    """An engine whose drafter is of the EAGLE family."""
    target = Decoder(MODEL)
    drafter = EAGLE_DRAFTERS[name](target, **settings)
    return Engine(target, drafter, ToyTokenizer(), name="tiny")


@each_value(name=EAGLE_DRAFTERS, sampling=SAMPLING, budget=[3, 7])
def test_a_sampled_draft_is_honest_about_its_law(name, sampling, budget, monkeypatch):
    spy = DraftSpy(monkeypatch)
    engine = make(name, lookahead=3)
    make_network = {"eagle": eagle_network, "eagle3": eagle3_network}[name]
    ids = TARGET_IDS if name == "eagle3" else range(24)
    drafting = ReferenceDrafter(MODEL, make_network(MODEL), ids)
    params = GenerationParams(
        max_tokens=10, num_draft_tokens=budget, sampling=SAMPLING[sampling], seed=3
    )
    tokens, drafted, most = list(PROMPT), 0, 0
    for event in engine.generate(PROMPT, params):
        if event.t not in ("verify", "plain"):
            continue
        draft = spy.drafts[-1]
        stated = () if draft.sampled_from is None else np.array(draft.sampled_from)
        for row, path in zip(stated, whole_paths(draft.tree), strict=False):
            logits = np.full(24, -np.inf)
            logits[list(ids)] = drafting.logits(tokens[:-1], path)
            text = (*tokens[:-1], *path)
            exact = exact_distribution(logits, SAMPLING[sampling], text, text[len(PROMPT) :])
            np.testing.assert_allclose(row, exact, atol=2e-4)
            drafted += 1
        tokens += [token.token for token in event.emit]
        most = max(most, np.bincount(draft.tree.parents[1:]).max(initial=0))
    assert drafted > 8
    assert most == budget // 3


def whole_paths(tree):
    """The tokens of each node's path, root first."""
    paths = []
    for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True):
        paths.append([*(paths[parent] if parent >= 0 else []), token])
    return paths


@EACH
def test_a_drafter_told_not_to_sample_proposes_the_greedy_tree_at_any_temperature(name):
    trees = []
    for sampling, samples in ((SamplingParams(), True), (SamplingParams(temperature=1.0), False)):
        engine = make(name, samples=samples)
        engine.target.attach(engine.drafter.readers)
        engine.target.observe(PROMPT[:-1])
        engine.drafter.start(PROMPT, sampling, mx.random.key(0))
        draft = engine.drafter.propose(PROMPT[-1], 8)
        assert draft.sampled_from is None
        trees.append(paths_of(draft))
    assert trees[0] == trees[1]


@EACH
def test_its_tree_is_merged_with_those_of_other_drafters_at_any_temperature(name):
    engine = make(name, samples=False)
    pool = PoolDrafter([TableDrafter(), engine.drafter])
    params = GenerationParams(max_tokens=LENGTH, num_draft_tokens=7)
    tokens = emitted(engine.generate(PROMPT, params, drafter=pool))
    assert tokens == TARGET.greedy(PROMPT, LENGTH)
    params = GenerationParams(
        max_tokens=6, num_draft_tokens=7, sampling=SamplingParams(temperature=1.0)
    )
    events = engine.generate(PROMPT, params, drafter=pool)
    sources = {node.source for event in events if event.t == "draft" for node in event.nodes}
    assert sources == {"table", name}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@EACH
def test_nothing_is_evaluated_while_drafting(name, temperature):
    """MLX refuses to evaluate an array while it traces; the states of the target are traced."""
    target = Decoder(MODEL)
    drafter = EAGLE_DRAFTERS[name](target)

    @mx.compile
    def draft(states):
        read = HiddenStates(states, dict.fromkeys(drafter.capture, states))
        drafter.read(PROMPT[:-1], read)
        drafter.start(PROMPT, SamplingParams(temperature=temperature), mx.random.key(0))
        proposed = drafter.propose(PROMPT[-1], 4)
        return proposed.tree.tokens, proposed.tree.parents, proposed.node_probs

    syncs = backend.host_syncs()
    tokens, parents, _ = draft(mx.random.normal((7, 64), key=mx.random.key(1)))
    assert backend.host_syncs() == syncs
    assert tokens.shape == parents.shape == (5,)
    assert tokens[0].item() == PROMPT[-1]


@EACH
def test_a_round_waits_once_for_the_device(name, forwards):
    params = GenerationParams(max_tokens=LENGTH, num_draft_tokens=7)
    engine = make(name)
    *_, finished = engine.generate(PROMPT, params)
    assert finished.stats["host_syncs"] == finished.stats["target_forwards"]
    assert forwards.of(engine.target.model) == 1 + finished.stats["target_forwards"]


@EACH
def test_every_row_drafted_is_forgotten_and_every_pair_is_kept_once(name):
    engine = make(name)
    list(engine.generate(PROMPT, GenerationParams(max_tokens=LENGTH, num_draft_tokens=7)))
    assert engine.drafter.cache.num_staged == 0
    assert engine.drafter.num_pairs == len(engine.target) - 1


def test_the_verdict_is_counted_where_a_law_has_penalties():
    engine = make("eagle3")
    sampling = SamplingParams(temperature=1.0, presence_penalty=2.0)
    engine.target.attach(engine.drafter.readers)
    engine.target.observe(PROMPT[:-1])
    rows = []
    for bonus in (2, 8):  # the bonus token is told, not read: only its penalty can differ
        engine.drafter.start(PROMPT, sampling, mx.random.key(0))
        engine.drafter.update(Round([3], [-1], [0], bonus))
        rows.append(np.array(engine.drafter.propose(3, 1).sampled_from[0]))
    assert rows[0][2] < rows[1][2]
    assert rows[0][8] > rows[1][8]
