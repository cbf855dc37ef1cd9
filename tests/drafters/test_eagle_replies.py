"""The EAGLE drafters in the engine: their laws, what they keep of a reply, and no waits."""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.decoder.hidden import HiddenStates
from mlxspec.device import backend
from mlxspec.params import GenerationParams, SamplingParams
from tests.support.drafting import DraftSpy
from tests.support.eagle_reference import ReferenceDrafter, paths_of
from tests.support.pairwise import each_value
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.tiny_heads_eagle import EAGLE_DRAFTERS, TARGET_IDS, eagle3_network, eagle_network
from tests.support.truth import Target, exact_distribution

PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
MODEL = tiny_model()
SAMPLING = {
    "temperature": SamplingParams(temperature=0.8),
    "all filters": SamplingParams(temperature=0.9, top_k=9, top_p=0.9, min_p=0.02),
    "penalties": SamplingParams(temperature=1.0, repetition_penalty=1.3, presence_penalty=0.4),
    "bias": SamplingParams(temperature=1.0, logit_bias={2: 1.5, 5: -3.0, 6: 2.0}),
}
PARAMS = GenerationParams(max_tokens=14, num_draft_tokens=7)
EACH = pytest.mark.parametrize("name", EAGLE_DRAFTERS)


def make(name, **settings):
    """An engine whose drafter is of the EAGLE family."""
    return make_engine(
        MODEL, None, make_drafter=lambda target: EAGLE_DRAFTERS[name](target, **settings)
    )


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
def test_a_text_known_from_an_earlier_turn_is_drafted_as_if_read_from_nothing(name):
    engine, fresh = make(name), make(name)
    first = emitted(engine.generate(PROMPT, PARAMS))
    turn = [*PROMPT, *first[:-3], 5, 9]  # leaves the reply three tokens before its end
    drafts = []
    for each in (engine, fresh):
        list(each.generate(turn, GenerationParams(max_tokens=1)))
        each.target.rollback_to(len(turn) - 1)
        each.drafter.start(turn, SamplingParams(), mx.random.key(0))
        drafts.append(paths_of(each.drafter.propose(turn[-1], 8)))
    assert set(drafts[0]) == set(drafts[1])
    np.testing.assert_allclose(
        list(drafts[0].values()), [drafts[1][path] for path in drafts[0]], rtol=1e-3
    )


@EACH
def test_a_reply_after_an_interrupted_one_is_right_and_drafted_as_ever(name, monkeypatch):
    engine = make(name)
    usual = [event.nodes for event in engine.generate(PROMPT, PARAMS) if event.t == "draft"]
    for is_told, rounds in ((False, 1), (True, 3)):
        events = engine.generate(PROMPT, PARAMS)
        while rounds:
            rounds -= next(events).t in ("verify", "plain")
        read = engine.drafter.read

        def interrupted(tokens, states, read=read, is_told=is_told):
            if is_told:
                read(tokens, states)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(engine.drafter, "read", interrupted)
            with pytest.raises(KeyboardInterrupt):
                list(events)
        again = list(engine.generate(PROMPT, PARAMS))
        assert emitted(again) == Target(MODEL).greedy(PROMPT, 14)
        nodes = [event.nodes for event in again if event.t == "draft"]
        assert [[node.token for node in each] for each in nodes] == [
            [node.token for node in each] for each in usual
        ]


@EACH
def test_every_row_drafted_is_forgotten_and_every_pair_is_kept_once(name):
    engine = make(name)
    list(engine.generate(PROMPT, PARAMS))
    assert engine.drafter.cache.num_staged == 0
    assert engine.drafter.num_pairs == len(engine.target) - 1


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
