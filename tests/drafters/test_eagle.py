"""The EAGLE drafters against a NumPy drafter that computes every path from nothing."""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.eagle.drafter import EagleDrafter
from mlxspec.drafters.search.beam import BeamShape
from mlxspec.kv.storage import GROWTH
from mlxspec.params import SamplingParams
from tests.support.eagle_reference import ReferenceDrafter, beam, paths_of
from tests.support.pairwise import pairwise
from tests.support.tiny import make_cache, tiny_model
from tests.support.tiny_heads_eagle import (
    EAGLE_BIASES,
    HASS_NORMS,
    TARGET_IDS,
    eagle3_network,
    eagle_network,
)

RING = (12, 2)
MODELS = {family: tiny_model(family) for family in ("llama", "qwen2")}
TEXT = [int(token) for token in np.random.default_rng(8).integers(0, 24, 40)]
GREEDY, KEY = SamplingParams(), mx.random.key(1)


def make(network, model, kind="full"):
    """A decoder and a drafter that reads its states."""
    target = Decoder(model, make_cache(model, kind))
    drafter = EagleDrafter(network, target)
    target.attach(drafter.readers)
    return target, drafter


def reference(network, model, kind="full"):
    ids = None if network.target_ids is None else TARGET_IDS
    return ReferenceDrafter(model, network, ids, RING if kind == "rotating" else None)


def assert_drafts_as(truth, drafter, history, root, budget=6):
    """The next draft is the tree that follows from the slow drafter's probabilities."""
    drafter.start([*history, root], GREEDY, KEY)
    draft = drafter.propose(root, budget)
    shape = BeamShape.for_budget(budget)
    expected = beam(
        lambda path: truth.probs(history, (root, *path)), shape.width, shape.depth, budget
    )
    drafted = paths_of(draft)
    assert set(drafted) == set(expected)
    for path, prob in expected.items():
        np.testing.assert_allclose(drafted[path], prob, rtol=2e-3)


EAGLE3_NETWORKS = {
    "reduced vocabulary": {},
    "whole vocabulary": {"is_reduced": False},
    "own head": {"own": ("head",)},
    "own embedding and whole head": {"own": ("embedding", "head"), "is_reduced": False},
    "norm before residual": {"norm_before_residual": True},
    "norm before fc": {"norm_before_fc": True},
    "norm of each tap": {"fc_norm": True},
    "recurrence on the norm": {"norm_output": True},
    "biases": {"attention_bias": True},
}
EAGLE_NETWORKS = {
    "biases": {},
    "no biases": {"optional": ()},
    "extra norms": {"optional": (*EAGLE_BIASES, *HASS_NORMS)},
    "own embedding and head": {"optional": ("embed_tokens.weight", "lm_head.weight")},
    "two layers": {"num_layers": 2},
}
NETWORKS = {
    **{f"eagle3, {name}": (eagle3_network, s) for name, s in EAGLE3_NETWORKS.items()},
    **{f"eagle, {name}": (eagle_network, s) for name, s in EAGLE_NETWORKS.items()},
}
PLAIN = {"eagle3": eagle3_network, "eagle": eagle_network}
EACH = pytest.mark.parametrize("kind_of_drafter", PLAIN)


@pytest.mark.parametrize("case", NETWORKS)
def test_drafts_the_tree_of_a_drafter_computed_from_nothing(case):
    make_network, settings = NETWORKS[case]
    network = make_network(MODELS["llama"], **settings)
    target, drafter = make(network, MODELS["llama"])
    target.observe(TEXT[:6])
    assert_drafts_as(reference(network, MODELS["llama"]), drafter, TEXT[:6], TEXT[6])


@pytest.mark.parametrize("kind", ["full", "rotating"])
@pytest.mark.parametrize("family", MODELS)
@EACH
def test_drafts_alike_however_the_text_was_read(kind_of_drafter, family, kind):
    network = PLAIN[kind_of_drafter](MODELS[family])
    target, drafter = make(network, MODELS[family], kind)
    truth = reference(network, MODELS[family], kind)
    done = 0
    for count in (1, 4, 1, 9, 2):  # past the ring of 12
        target.observe(TEXT[done : done + count])
        done += count
        if done > 1:
            assert_drafts_as(truth, drafter, TEXT[:done], TEXT[done])


@EACH
def test_over_a_ring_features_that_it_will_never_need_are_given_back(kind_of_drafter):
    """And the drafts stay those of a drafter computed from nothing, where the rows have moved."""
    network = PLAIN[kind_of_drafter](MODELS["llama"])
    target, drafter = make(network, MODELS["llama"], "rotating")
    text = (TEXT * 8)[:310]
    target.observe(text[:300])
    for token in text[300:]:
        target.observe([token])
    assert drafter._features.arrays[0].shape[2] < 2 * GROWTH
    truth = reference(network, MODELS["llama"], "rotating")
    assert_drafts_as(truth, drafter, text, TEXT[0])


@EACH
def test_accepted_nodes_give_their_pairs_the_states_of_the_target(kind_of_drafter):
    network = PLAIN[kind_of_drafter](MODELS["llama"])
    target, drafter = make(network, MODELS["llama"])
    truth = reference(network, MODELS["llama"])
    target.observe(TEXT[:5])
    history = TEXT[:5]
    for root, picks in ((4, 2), (9, 1), (2, 3), (7, 0)):
        drafter.start([*history, root], GREEDY, KEY)
        draft = drafter.propose(root, 6)
        mx.eval(target.forward_tree(draft.tree))
        path = branch(draft, picks)
        target.commit(path)
        history += [draft.tree.tokens.tolist()[node] for node in path]
        assert target.history == tuple(history)
    assert_drafts_as(truth, drafter, history, 1)


def branch(draft, length):
    """Nodes from the root down, `length` below it, the last children rather than the first."""
    parents = draft.tree.parents.tolist()
    path = [0]
    for _ in range(length):
        below = [node for node, parent in enumerate(parents) if parent == path[-1]]
        if not below:
            break
        path.append(next((n for n in reversed(below) if n in parents), below[-1]))
    return path


@pairwise(
    texts=[*((9, length) for length in (0, 1, 3, 7, 8)), (20, 16)],  # read, and kept of it
    kind=["full", "rotating"],
    kind_of_drafter=PLAIN,
)
def test_a_rollback_keeps_the_pairs_in_step(kind_of_drafter, kind, texts):
    num_read, length = texts
    network = PLAIN[kind_of_drafter](MODELS["llama"])
    target, drafter = make(network, MODELS["llama"], kind)
    target.observe(TEXT[:6])
    drafter.start(TEXT[:7], GREEDY, KEY)
    mx.eval(drafter.propose(TEXT[6], 6).tree.tokens)
    target.observe(TEXT[6:num_read])
    target.rollback_to(length)
    other = [token + 1 if token < 23 else 0 for token in TEXT[length : length + 4]]
    target.observe(other)
    history = [*TEXT[:length], *other]
    assert drafter.num_read == len(history)
    assert_drafts_as(reference(network, MODELS["llama"], kind), drafter, history, 3)


@EACH
def test_a_long_prompt_is_read_at_once_and_leaves_nothing_to_do(kind_of_drafter):
    network = PLAIN[kind_of_drafter](MODELS["llama"])
    target, drafter = make(network, MODELS["llama"])
    text = (TEXT * 2)[:70]
    target.observe(text)
    assert drafter.cache.offset == len(text) - 1
    assert_drafts_as(reference(network, MODELS["llama"]), drafter, text, 3, budget=4)
