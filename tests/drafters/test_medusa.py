"""Medusa: what the heads say, where it hangs in the tree, and which nodes are chosen."""

import itertools
from functools import partial

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.decoder.hidden import HiddenStates
from mlxspec.device import backend
from mlxspec.drafters.medusa import MedusaDrafter, MedusaHeads
from mlxspec.params import GenerationParams
from tests.support.drafting import path_probs, shape_of
from tests.support.pairwise import each_value
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.tiny_heads_medusa import (
    TARGET_IDS,
    knowing_drafter,
    medusa_config,
    medusa_drafter,
    medusa_tensors,
)
from tests.support.truth import Target

MODEL = tiny_model()
PROMPT, LENGTH = [3, 7, 1, 3, 7, 1, 4, 3], 20
STATE = mx.random.normal((1, 64), key=mx.random.key(8))
ACCURACIES = [[0.5, 0.2, 0.1], [0.4, 0.25, 0.1], [0.3, 0.1, 0.2]]  # ranks need not fall


def reading(drafter, state=STATE):
    """The drafter after a token with this state."""
    drafter.read([5], HiddenStates(state, {}))
    return drafter


def numpy_logits(tensors, num_heads, state, head_weight):
    """(H, V') float64 logits, from the formula."""
    tensors = {name: np.array(array, np.float64) for name, array in tensors.items()}
    rows = []
    for head in range(num_heads):
        x = np.array(state, np.float64)[0]
        for block in range(2):
            name = f"heads.{head}.blocks.{block}"
            if f"{name}.weight" in tensors:
                y = tensors[f"{name}.weight"] @ x + tensors[f"{name}.bias"]
                x = x + y / (1 + np.exp(-y))
        rows.append(tensors.get(f"heads.{head}.out.weight", head_weight) @ x)
    return np.array(rows)


def log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def said_by(drafter, budget):
    """{path of tokens below the root: probability stated for its end}."""
    tokens, parents, probs = shape_of(drafter.propose(9, budget))
    paths = [()]
    for token, parent in zip(tokens[1:], parents[1:], strict=True):
        paths.append((*paths[parent], token))
    return dict(zip(paths[1:], probs, strict=True))


# ---- the heads ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "num_blocks", "is_tied"),
    [
        pytest.param({}, 1, False, id="no output layers"),
        pytest.param({"reduced": True}, 2, False, id="no output layers, reduced"),
        pytest.param({"reduced": True}, 1, True, id="no output layers, a tied target"),
        pytest.param({"own": 24}, 2, False, id="own"),
        pytest.param({"own": 24}, 0, False, id="own, and no blocks"),
        pytest.param({"own": 14, "reduced": True}, 1, False, id="own, reduced"),
        pytest.param({"own": 10}, 1, False, id="own, the first tokens"),
    ],
)
def test_heads_say_what_the_formula_says(settings, num_blocks, is_tied):
    model = tiny_model(tie_word_embeddings=is_tied)
    tensors = medusa_tensors(model, num_blocks=num_blocks, **settings)
    heads = MedusaHeads.from_checkpoint(medusa_config(model), tensors)
    drafter = reading(MedusaDrafter(heads, Decoder(model)))
    weight = np.array(model.model.embed_tokens.weight if is_tied else model.lm_head.weight)
    ids = np.arange(24)
    if settings.get("reduced"):
        ids, weight = np.array(TARGET_IDS), weight[list(TARGET_IDS)]
    expected = log_softmax(numpy_logits(tensors, 3, STATE, weight))
    said = said_by(drafter, 30)
    assert len(said) == 30
    for path, prob in said.items():
        [index] = np.flatnonzero(ids == path[-1])
        assert prob == pytest.approx(np.exp(expected[len(path) - 1, index]), abs=2e-5)


def test_never_drafts_a_token_beyond_the_vocabulary():
    model = tiny_model(vocab_size=20)
    drafter = reading(medusa_drafter(Decoder(model), own=32, num_heads=2))
    said = said_by(drafter, 40)
    assert len(said) == 40
    assert max(path[-1] for path in said) < 20


# ---- where what they say hangs -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "kind", "accuracies"),
    [("llama", "full", None), ("qwen2", "rotating", None), ("llama", "int8", ACCURACIES)],
)
def test_head_i_stands_i_plus_1_below_the_root(family, kind, accuracies):
    # Heads that know the target's greedy text are accepted whole, in every round, only if they
    # read the state just before the root and each speaks for its own depth.
    model = tiny_model(family)
    text = PROMPT + Target(model, kind).greedy(PROMPT, LENGTH + 4)
    knowing = partial(knowing_drafter, text=text, accuracies=accuracies)
    engine = make_engine(model, None, kind, make_drafter=knowing)
    params = GenerationParams(max_tokens=LENGTH, num_draft_tokens=8)
    events = list(engine.generate(PROMPT, params))
    *rounds, _ = [event for event in events if event.t == "verify"]  # the last one is cut short
    assert emitted(events) == text[len(PROMPT) :][:LENGTH]
    assert [len(event.emit) for event in rounds] == [4] * (LENGTH // 4 - 1)


def test_drafts_nothing_where_the_last_state_was_forgotten():
    drafter = medusa_drafter(Decoder(MODEL))
    assert drafter.propose(9, 5).tree.tokens.tolist() == [9]
    assert drafter.cursor(9).next_probs() == {}
    drafter.read([5, 6, 7], HiddenStates(mx.ones((3, 64)), {}))
    drafter.forget(3)
    assert drafter.propose(9, 5).tree.n_nodes == 6
    drafter.forget(2)
    assert drafter.num_read == 2
    assert drafter.propose(9, 5).tree.n_nodes == 1


def test_propose_waits_for_nothing():
    drafter = reading(medusa_drafter(Decoder(MODEL)))
    before = backend.host_syncs()
    drafter.propose(9, 8)
    assert backend.host_syncs() == before
    drafter.cursor(9)
    assert backend.host_syncs() == before + 1


def test_a_pool_gets_a_depth_s_guesses_below_every_path():
    drafter = reading(medusa_drafter(Decoder(MODEL)))
    place = drafter.cursor(9)
    said = said_by(drafter, 30)
    for depth in range(3):
        expected = {path[-1]: prob for path, prob in said.items() if len(path) == depth + 1}
        for token, prob in expected.items():
            assert place.next_probs()[token] == pytest.approx(prob, abs=1e-5)
        assert place.source_of(next(iter(expected))) == "medusa"
        place = place.child(23 - depth)  # any token at all
    assert place.next_probs() == {}


# ---- which nodes are chosen --------------------------------------------------------------------


def drafting(logits, accuracies=None):
    """A drafter whose heads have these logits."""
    drafter = reading(medusa_drafter(Decoder(MODEL), num_heads=len(logits), accuracies=accuracies))
    object.__setattr__(drafter.heads, "logits", lambda *_: mx.array(logits, mx.float32))
    return drafter


def best_first(log_probs, budget):
    """{path: log-probability of its end} of the best products, by trying them all."""
    ranked = np.argsort(-log_probs, axis=1, kind="stable")[:, :10]
    paths = []
    for depth in range(1, len(log_probs) + 1):
        for path in itertools.product(*ranked[:depth].tolist()):
            ends = [log_probs[head, token] for head, token in enumerate(path)]
            paths.append((-sum(ends), path, ends[-1]))
    return {path: end for _, path, end in sorted(paths)[:budget]}


@pytest.mark.parametrize(
    ("num_heads", "sharpness", "budget"),
    [(1, 0.3, 7), (3, 2.0, 1), (3, 0.3, 16), (4, 8.0, 3), (4, 2.0, 33), (4, 0.3, 2), (3, 8.0, 33)],
)
def test_the_tree_is_the_best_one(num_heads, sharpness, budget):
    seed = np.random.default_rng(int(100 * sharpness) + budget)
    log_probs = log_softmax(sharpness * seed.normal(size=(num_heads, 12)))
    assert set(said_by(drafting(log_probs), budget)) == set(best_first(log_probs, budget))


@pytest.mark.parametrize("budget", [1, 7, 16])
def test_accuracies_are_weighed_in_as_a_geometric_mean(budget):
    log_probs = log_softmax(2.0 * np.random.default_rng(budget).normal(size=(3, 12)))
    shares = [[0.4, 0.1, 0.2, 0.0], [0.3, 0.3, 0.1, 0.05], [0.2, 0.1, 0.1, 0.1]]
    trusted = [[0.4, 0.1, 0.1, np.exp(-60)], *shares[1:]]  # no rank above the one before it
    weighed = np.full_like(log_probs, -1e9)
    for head, row in enumerate(trusted):
        best = np.argsort(-log_probs[head], kind="stable")[: len(row)]
        weighed[head, best] = (log_probs[head, best] + np.log(row)) / 2
    said, expected = said_by(drafting(log_probs, shares), budget), best_first(weighed, budget)
    assert set(said) == set(expected)
    for path, end in expected.items():
        assert said[path] == pytest.approx(np.exp(end), rel=1e-4)


def test_accuracies_of_fewer_heads_make_a_tree_of_these():
    logits = np.random.default_rng(0).normal(size=(3, 12))
    said = said_by(drafting(logits, [[0.5, 0.4], [0.3, 0.2]]), 20)
    assert set(map(len, said)) == {1, 2}


@each_value(chances=[[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0], [0.25] * 4], budget=[1, 4, 6, 19])
def test_ties_leave_the_tree_whole(chances, budget):
    with np.errstate(divide="ignore"):
        said = said_by(drafting(np.log(np.tile(chances, (4, 1)))), budget)
    assert len(said) == budget  # each child behind a parent in the tree, none twice


@pytest.mark.parametrize("accuracies", [None, [[0.5, 0.2, 0.1]] * 3])
def test_a_head_that_overflows_leaves_the_tree_whole(accuracies):
    logits = [[1.0, 2.0, 3.0], [np.nan] * 3, [np.inf, 1.0, 0.0]]
    draft = drafting(logits, accuracies).propose(9, 9)
    assert draft.tree.n_nodes == 10
    assert all(0 < prob <= 1 for prob in draft.node_probs.tolist())


def test_the_tree_ends_where_the_paths_do():
    assert len(said_by(drafting([[0.1, 0.2], [0.4, 0.3]]), 50)) == 2 + 4


def test_nodes_stand_in_order_of_path_probability():
    probs = path_probs(reading(medusa_drafter(Decoder(MODEL))).propose(9, 16))
    assert probs == sorted(probs, reverse=True)
