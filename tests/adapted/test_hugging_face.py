"""Models of mlx-lm, adapted, against Hugging Face on the same weights in float32.

Texts, trees and replies of Qwen3, of Gemma 3 with windows that are shorter than the text and two
rotary bases, of Phi-3 with partial rotation and longrope, and of Qwen3-Next with recurrent states.
"""

import json
from dataclasses import dataclass
from functools import cache

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.utils import load_model

from mlxspec.adapted.model import AdaptedModel
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafting.registry import HOST_DRAFTERS
from mlxspec.drafts.tree import DraftTree
from mlxspec.params import GenerationParams
from tests.support.adversaries import AlwaysRight, RandomTrees
from tests.support.model_folders import save_json
from tests.support.paths import GOLDENS
from tests.support.reference import path_to
from tests.support.tiny import emitted, make_engine, text_logits

FOLDER = GOLDENS / "adapted"
NAMES = sorted(path.stem for path in FOLDER.glob("*.safetensors"))
EACH = pytest.mark.parametrize("name", NAMES)


@dataclass(frozen=True)
class Golden:
    """A model of mlx-lm and what Hugging Face says with its weights: logits, and greedy tokens."""

    model: AdaptedModel
    tokens: list[int]
    logits: np.ndarray
    tree: DraftTree  # behind the tokens
    tree_logits: np.ndarray
    greedy: list[int]  # behind the tokens, too


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """Loads a golden once (see make_adapted_goldens.py); the model gets its weights from mlx-lm."""

    @cache
    def loaded(name):
        arrays, metadata = mx.load(str(FOLDER / f"{name}.safetensors"), return_metadata=True)
        own = {key: arrays.pop(key) for key in list(arrays) if key.startswith("weights.")}
        weights = {key.removeprefix("weights."): a.astype(mx.float32) for key, a in own.items()}
        folder = tmp_path_factory.mktemp(name)
        save_json(folder / "config.json", json.loads(metadata["config"]))
        mx.save_safetensors(str(folder / "model.safetensors"), weights)
        nodes = arrays["tree_tokens"].tolist(), arrays["tree_parents"].tolist()
        logits, tree_logits = np.array(arrays["logits"]), np.array(arrays["tree_logits"])
        return Golden(
            *(AdaptedModel(load_model(folder)[0]), arrays["tokens"].tolist(), logits),
            *(DraftTree.from_lists(*nodes), tree_logits, arrays["greedy"].tolist()),
        )

    return loaded


def assert_close(logits, expected):
    np.testing.assert_allclose(np.array(logits), expected, atol=1e-4)


def test_there_are_goldens_of_four_families():
    assert {name.split("_")[0] for name in NAMES} == {"gemma3", "phi3", "qwen3", "qwen3next"}
    assert len(NAMES) == 8


@EACH
def test_a_text_whole_or_in_parts_gives_the_logits_of_hugging_face(load, name):
    golden = load(name)
    assert_close(text_logits(golden.model, golden.tokens), golden.logits)
    decoder = Decoder(golden.model)
    for end in (9, len(golden.tokens) - 2, len(golden.tokens) - 1, len(golden.tokens)):
        decoder.observe(golden.tokens[len(decoder) : end])
        assert_close(decoder.next_logits(), golden.logits[end - 1])


@EACH
def test_every_node_of_a_tree_in_any_order_has_the_logits_of_hugging_face_on_its_path(load, name):
    golden = load(name)
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
def test_a_committed_branch_goes_on_as_hugging_face_does_and_can_be_taken_back(load, name):
    golden = load(name)
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
def test_a_chain_that_is_staged_in_three_forwards_has_the_logits_of_hugging_face(load, name):
    golden = load(name)
    decoder = Decoder(golden.model)
    decoder.observe(golden.tokens[:33])
    chunks = (golden.tokens[33:34], golden.tokens[34:38], golden.tokens[38:])
    hidden = [decoder.extend_chain(mx.array(chunk, mx.int32)) for chunk in chunks]
    assert_close(decoder.logits(mx.concatenate(hidden)), golden.logits[33:])
    decoder.commit_chain(golden.tokens[33:36])
    assert_close(decoder.next_logits(), golden.logits[35])


@pytest.mark.parametrize("name", NAMES[::2])
def test_a_greedy_reply_with_a_pool_is_that_of_hugging_face(load, name):
    golden = load(name)
    engine = make_engine(golden.model, HOST_DRAFTERS["pool"]())
    params = GenerationParams(max_tokens=len(golden.greedy), num_draft_tokens=6)
    rounds = [event for event in engine.generate(golden.tokens, params) if hasattr(event, "emit")]
    assert emitted(rounds) == golden.greedy
    assert len(rounds) < len(golden.greedy), "no draft was accepted"


@EACH
@pytest.mark.parametrize("drafter", ["always right", "random trees"])
def test_a_greedy_reply_is_that_of_hugging_face_whatever_drafts(load, name, drafter):
    golden = load(name)
    right = AlwaysRight(golden.tokens + golden.greedy)
    engine = make_engine(golden.model, right if drafter == "always right" else RandomTrees(64))
    params = GenerationParams(max_tokens=len(golden.greedy), num_draft_tokens=6)
    assert emitted(engine.generate(golden.tokens, params)) == golden.greedy
