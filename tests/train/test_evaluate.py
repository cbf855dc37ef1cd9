"""Acceptance of drafters whose figures follow from their construction."""

import json

import numpy as np
import pytest

from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.drafts.draft import Draft
from mlxspec.measure.tables import as_json
from mlxspec.train.data.corpus import Conversation
from mlxspec.train.evaluate import Acceptance, as_table, evaluate, heldout_prompts
from tests.support.adversaries import AlwaysRight, AlwaysWrong
from tests.support.tiny import make_engine, tiny_model
from tests.support.truth import Target

MODEL = tiny_model()
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
REPLY = Target(MODEL).greedy(PROMPT, 60)
FULL = PROMPT + REPLY


def measured(make_drafter, num_draft_tokens, max_tokens):
    return evaluate(
        make_engine(MODEL, None),
        make_drafter,
        [PROMPT],
        num_draft_tokens=[num_draft_tokens],
        temperatures=[0.0],
        max_tokens=max_tokens,
    )


def test_a_drafter_that_is_always_right_has_all_its_nodes_accepted():
    (found,) = measured(lambda: AlwaysRight(FULL), 4, 20)
    assert found.tokens_per_forward == 5
    assert found.acceptance_by_depth == [1, 1, 1, 1]
    assert (found.num_tokens, found.forwards, found.drafted) == (20, 4, 16)


def test_a_drafter_that_is_always_wrong_leaves_one_token_per_forward():
    (found,) = measured(lambda: AlwaysWrong(FULL), 4, 20)
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
    (found,) = measured(lambda: EverySecondTime(FULL), 2, 20)
    assert found.tokens_per_forward == pytest.approx(5 / 3)
    assert found.acceptance_by_depth == pytest.approx([1 / 3, 1 / 3])
    assert found.forwards == 12


def test_no_draft_is_cut_short_by_the_end_of_the_measurement():
    (found,) = measured(lambda: AlwaysRight(FULL), 4, 11)
    assert (found.tokens_per_forward, found.num_tokens) == (5, 15)


def test_measures_every_combination_on_every_prompt():
    told = []
    engine = make_engine(MODEL, None)
    found = evaluate(
        engine,
        SuffixDrafter,
        [PROMPT, PROMPT[:5]],
        num_draft_tokens=(1, 3),
        temperatures=(0.0, 1.0),
        max_tokens=4,
        on_progress=lambda done, total: told.append((done, total)),
    )
    combinations = [(one.temperature, one.num_draft_tokens) for one in found]
    assert combinations == [(0.0, 1), (0.0, 3), (1.0, 1), (1.0, 3)]
    assert all(one.num_answers == 2 for one in found)
    assert told == [(done, 8) for done in range(1, 9)]


def test_the_engine_keeps_its_drafter():
    own = SuffixDrafter()
    engine = make_engine(MODEL, own)
    given = {"num_draft_tokens": (2,), "temperatures": (0.0,), "max_tokens": 2}
    evaluate(engine, lambda: AlwaysRight(FULL), [PROMPT], **given)
    assert engine.drafter is own


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
    found = Acceptance("table", 0.0, 8, 2, 30, 10, 80, (10, 5, 5), draft_s=0.02)
    figures = json.loads(json.dumps(as_json(found)))
    assert figures["tokens_per_forward"] == 3.0
    assert figures["acceptance_by_depth"] == [1.0, 0.5, 0.5]
    head, line = as_table([found]).splitlines()
    assert line.split() == [
        *("table", "0", "8", "3.000"),
        *("1.00", "0.50", "0.50", "-", "-", "10", "2.00"),
    ]
    assert len(head) == len(line)
