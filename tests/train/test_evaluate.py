"""Acceptance of drafters whose figures follow from their construction."""

import json

import numpy as np
import pytest

from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.drafts.draft import Draft
from mlxspec.measure.tables import as_json
from mlxspec.train.data.corpus import Conversation
from mlxspec.train.evaluate import (
    Acceptance,
    LikeliestPath,
    Settings,
    as_table,
    evaluate,
    heldout_prompts,
)
from tests.support.adversaries import AlwaysRight, AlwaysWrong, UniformChain
from tests.support.drafting import KEY, SAMPLING
from tests.support.tiny import make_engine, tiny_model
from tests.support.truth import Target

MODEL = tiny_model()
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
REPLY = Target(MODEL).greedy(PROMPT, 60)
FULL = PROMPT + REPLY
SAMPLED = {"temperatures": (1.0,), "shapes": ("tree",)}
TREE = {"temperatures": (0.0,), "shapes": ("tree",)}


def measured(make_drafter, prompts=(PROMPT,), **settings):
    engine = make_engine(MODEL, None)
    return evaluate(engine, make_drafter, prompts, Settings(**settings))


def test_a_drafter_that_is_always_right_has_all_its_nodes_accepted():
    (found,) = measured(lambda: AlwaysRight(FULL), num_draft_tokens=(4,), max_tokens=20, **TREE)
    assert found.tokens_per_forward == 5
    assert found.acceptance_by_depth == [1, 1, 1, 1]
    assert (found.num_tokens, found.forwards, found.drafted) == (20, 4, 16)


def test_a_drafter_that_is_always_wrong_leaves_one_token_per_forward():
    (found,) = measured(lambda: AlwaysWrong(FULL), num_draft_tokens=(4,), max_tokens=20, **TREE)
    assert found.tokens_per_forward == 1
    assert found.acceptance_by_depth == []
    assert (found.num_tokens, found.forwards, found.drafted) == (20, 20, 80)


class EverySecondTime(AlwaysRight):
    """Right, wrong, silent, and so on."""

    def start(self, prompt, sampling, key):
        super().start(prompt, sampling, key)
        self.turn = 0

    def propose(self, root, budget):
        self.turn += 1
        kind = self.turn % 3
        if kind == 0:
            return Draft.empty(root)
        return (AlwaysRight if kind == 1 else AlwaysWrong).propose(self, root, budget)


def test_forwards_without_a_draft_count():
    # A turn of three forwards emits 3 + 1 + 1 tokens.
    (found,) = measured(lambda: EverySecondTime(FULL), num_draft_tokens=(2,), max_tokens=20, **TREE)
    assert found.tokens_per_forward == pytest.approx(5 / 3)
    assert found.acceptance_by_depth == pytest.approx([1 / 3, 1 / 3])
    assert found.forwards == 12


def test_no_draft_is_cut_short_by_the_end_of_the_measurement():
    (found,) = measured(lambda: AlwaysRight(FULL), num_draft_tokens=(4,), max_tokens=11, **TREE)
    assert (found.tokens_per_forward, found.num_tokens) == (5, 15)


def test_measures_every_combination_on_every_prompt():
    told = []
    engine = make_engine(MODEL, None)
    settings = Settings(num_draft_tokens=(1, 3), max_tokens=4)
    found = evaluate(
        engine,
        SuffixDrafter,
        [PROMPT, PROMPT[:5]],
        settings,
        on_progress=lambda done, total: told.append((done, total)),
    )
    assert [(one.shape, one.temperature, one.num_draft_tokens) for one in found] == [
        (shape, temperature, number)
        for shape in ("tree", "chain")
        for temperature in (0.0, 1.0)
        for number in (1, 3)
    ]
    assert all(one.num_answers == 2 for one in found)
    assert told == [(done, 16) for done in range(1, 17)]


def test_the_same_seed_measures_the_same():
    first, second, other = (
        measured(SuffixDrafter, num_draft_tokens=(3,), max_tokens=16, seed=seed, **SAMPLED)
        for seed in (1, 1, 2)
    )
    figures = [(found.accepted_at_depth, found.forwards) for (found,) in (first, second, other)]
    assert figures[0] == figures[1] != figures[2]


def test_the_engine_keeps_its_drafter():
    own = SuffixDrafter()
    engine = make_engine(MODEL, own)
    evaluate(engine, lambda: AlwaysRight(FULL), [PROMPT], Settings((2,), max_tokens=2))
    assert engine.drafter is own


class Fixed(AlwaysRight):
    """The same tree, come what may."""

    def propose(self, root, budget):
        probs = [0.3, 0.6, 0.5, 0.2]
        return Draft.from_lists([root, 1, 2, 3, 4], [-1, 0, 0, 2, 1], ["fixed"] * 4, probs)


def test_a_chain_is_the_most_probable_path_of_a_tree():
    draft = LikeliestPath(Fixed([])).propose(9, 4)
    assert draft.tree.tokens.tolist() == [9, 2, 3]
    assert draft.tree.parents.tolist() == [-1, 0, 1]


def test_a_sampled_chain_keeps_its_distribution():
    drafter = LikeliestPath(UniformChain(24))
    drafter.start(PROMPT, SAMPLING, KEY)
    assert drafter.propose(3, 3).sampled_from.shape == (3, 24)


def test_chains_of_a_wrong_drafter_draft_one_node():
    (found,) = measured(
        lambda: AlwaysWrong(FULL),
        num_draft_tokens=(4,),
        max_tokens=6,
        temperatures=(0.0,),
        shapes=("chain",),
    )
    assert (found.drafted, found.forwards) == (6, 6)


def conversation(tokens, mask, is_heldout=True):
    return Conversation(np.array(tokens, np.int32), np.array(mask, np.uint8), is_heldout)


def test_prompts_stand_before_the_greedy_answers_of_heldout_conversations():
    corpus = [
        conversation([1, 2, 3, 4, 5, 6], [0, 0, 1, 0, 1, 1]),
        conversation([1, 2, 3], [0, 2, 2]),
        conversation([7, 8, 9], [0, 0, 1], is_heldout=False),
        conversation([7, 8, 9], [0, 1, 1]),
    ]
    assert heldout_prompts(corpus) == [[1, 2], [1, 2, 3, 4], [7]]
    assert heldout_prompts(corpus, 2) == [[1, 2], [7]]
    assert heldout_prompts(corpus[1:3]) == []


def test_figures_are_ready_for_json_and_for_people():
    found = Acceptance("table", "tree", 0.0, 8, 2, 30, 10, 80, (10, 5, 5), draft_s=0.02)
    figures = json.loads(json.dumps(as_json(found)))
    assert figures["tokens_per_forward"] == 3.0
    assert figures["acceptance_by_depth"] == [1.0, 0.5, 0.5]
    head, line = as_table([found]).splitlines()
    assert line.split() == [
        *("table", "tree", "0", "8", "3.000"),
        *("1.00", "0.50", "0.50", "-", "-", "10", "2.00"),
    ]
    assert len(head) == len(line)
