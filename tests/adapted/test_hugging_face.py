"""Models of mlx-lm, adapted, against Hugging Face on the same weights in float32.

Texts, trees and replies of Qwen3, of Gemma 3 with windows that are shorter than the text and two
rotary bases, of Phi-3 with partial rotation and longrope, and of Qwen3-Next with recurrent states.
"""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafting.registry import HOST_DRAFTERS
from mlxspec.drafts.tree import DraftTree
from mlxspec.params import GenerationParams
from tests.support.adapted_golden import NAMES, load_adapted_golden
from tests.support.adversaries import AlwaysRight, RandomTrees
from tests.support.reference import path_to
from tests.support.tiny import emitted, make_engine, text_logits

EACH = pytest.mark.parametrize("name", NAMES)


def assert_close(logits, expected):
    np.testing.assert_allclose(np.array(logits), expected, atol=1e-4)


def test_there_are_goldens_of_four_families():
    assert {name.split("_")[0] for name in NAMES} == {"gemma3", "phi3", "qwen3", "qwen3next"}
    assert len(NAMES) == 8


@EACH
def test_a_text_whole_or_in_parts_gives_the_logits_of_hugging_face(name):
    golden = load_adapted_golden(name)
    assert_close(text_logits(golden.model, golden.tokens), golden.logits)
    decoder = Decoder(golden.model)
    for end in (9, len(golden.tokens) - 2, len(golden.tokens) - 1, len(golden.tokens)):
        decoder.observe(golden.tokens[len(decoder) : end])
        assert_close(decoder.next_logits(), golden.logits[end - 1])


@EACH
def test_every_node_of_a_tree_in_any_order_has_the_logits_of_hugging_face_on_its_path(name):
    golden = load_adapted_golden(name)
    tokens, parents = golden.tree.tokens.tolist(), golden.tree.parents.tolist()
    order = sorted(range(len(tokens)), key=lambda node: path_to(parents, node))
    at = {node: index for index, node in enumerate(order)} | {-1: -1}
    by_branch = DraftTree.from_lists(
        [tokens[node] for node in order], [at[parents[node]] for node in order]
    )
    decoder = Decoder(golden.model)
    decoder.observe(golden.tokens)
    assert_close(decoder.tree_logits(golden.tree), golden.tree_logits)
    assert_close(decoder.tree_logits(by_branch), golden.tree_logits[order])


@EACH
def test_a_committed_branch_goes_on_as_hugging_face_does_and_can_be_taken_back(name):
    golden = load_adapted_golden(name)
    decoder = Decoder(golden.model)
    decoder.observe(golden.tokens)
    parents = golden.tree.parents.tolist()
    for node in (7, 11, 4):  # those after the first begin where a branch was taken back
        path = path_to(parents, node)
        decoder.forward_tree(golden.tree)
        decoder.commit(path[:-1])
        decoder.observe([int(golden.tree.tokens[node].item())])
        assert_close(decoder.next_logits(), golden.tree_logits[node])
        decoder.rollback_to(len(golden.tokens))


@EACH
def test_a_chain_that_is_staged_in_three_forwards_has_the_logits_of_hugging_face(name):
    golden = load_adapted_golden(name)
    decoder = Decoder(golden.model)
    decoder.observe(golden.tokens[:33])
    chunks = (golden.tokens[33:34], golden.tokens[34:38], golden.tokens[38:])
    hidden = [decoder.extend_chain(mx.array(chunk, mx.int32)) for chunk in chunks]
    assert_close(decoder.logits(mx.concatenate(hidden)), golden.logits[33:])
    decoder.commit_chain(golden.tokens[33:36])
    assert_close(decoder.next_logits(), golden.logits[35])


@pytest.mark.parametrize("name", NAMES[::2])
def test_a_greedy_reply_with_a_pool_is_that_of_hugging_face(name):
    golden = load_adapted_golden(name)
    engine = make_engine(golden.model, HOST_DRAFTERS["pool"]())
    params = GenerationParams(max_tokens=len(golden.greedy), num_draft_tokens=6)
    rounds = [event for event in engine.generate(golden.tokens, params) if hasattr(event, "emit")]
    assert emitted(rounds) == golden.greedy
    assert len(rounds) < len(golden.greedy), "no draft was accepted"


@EACH
@pytest.mark.parametrize("drafter", ["always right", "random trees"])
def test_a_greedy_reply_is_that_of_hugging_face_whatever_drafts(name, drafter):
    golden = load_adapted_golden(name)
    right = AlwaysRight(golden.tokens + golden.greedy)
    engine = make_engine(golden.model, right if drafter == "always right" else RandomTrees(64))
    params = GenerationParams(max_tokens=len(golden.greedy), num_draft_tokens=6)
    assert emitted(engine.generate(golden.tokens, params)) == golden.greedy
