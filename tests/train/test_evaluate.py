"""Acceptance of drafters: figures that follow from their construction, and chains by hand."""

import json

import numpy as np
import pytest

from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.drafts.draft import Draft
from mlxspec.errors import MlxspecError
from mlxspec.measure.tables import as_json
from mlxspec.train.data.corpus import Conversation
from mlxspec.train.evaluate import Acceptance, as_table, evaluate, heldout_prompts
from mlxspec.train.objective import chain_figures, chain_matches, runs
from tests.support.adversaries import AlwaysRight, AlwaysWrong
from tests.support.tiny import make_engine, tiny_model
from tests.support.training import mean_chain
from tests.support.truth import Target

MODEL = tiny_model()
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
REPLY = Target(MODEL).greedy(PROMPT, 60)
FULL = PROMPT + REPLY


class EverySecondTime(AlwaysRight):
    """Right, wrong, silent, and so on: three forwards emit 3 + 1 + 1 tokens."""

    def start(self, prompt, sampling, key):
        super().start(prompt, sampling, key)
        self.turn = 0

    def propose(self, root, budget):
        self.turn += 1
        kind = self.turn % 3
        if kind == 0:
            return Draft.empty(root)
        return (AlwaysRight if kind == 1 else AlwaysWrong).propose(self, root, budget)


@pytest.mark.parametrize(
    ("drafter", "nodes", "asked", "per_forward", "by_depth", "tokens", "forwards"),
    [
        (AlwaysRight, 4, 20, 5, [1, 1, 1, 1], 20, 4),
        (AlwaysWrong, 4, 20, 1, [], 20, 20),
        (AlwaysRight, 4, 11, 5, [1, 1, 1, 1], 15, 3),  # no draft is cut short by the end
        (EverySecondTime, 2, 20, 5 / 3, [1 / 3, 1 / 3], 20, 12),  # those without a draft count
    ],
)
def test_figures_are_those_of_the_rounds(
    drafter, nodes, asked, per_forward, by_depth, tokens, forwards
):
    (found,) = evaluate(
        make_engine(MODEL, None),
        lambda: drafter(FULL),
        [PROMPT],
        num_draft_tokens=[nodes],
        temperatures=[0.0],
        max_tokens=asked,
    )
    assert found.tokens_per_forward == pytest.approx(per_forward)
    assert found.acceptance_by_depth == pytest.approx(by_depth)
    assert (found.num_tokens, found.forwards) == (tokens, forwards)


def test_measures_every_combination_on_every_prompt():
    told = []
    own = SuffixDrafter()
    engine = make_engine(MODEL, own)
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


# ---- acceptance along a stored text ----------------------------------------------------------


def bools(*rows):
    return np.array([[mark == "x" for mark in row] for row in rows])


def test_runs_start_at_positions_with_enough_others_before_a_gap():
    places = np.array([3, 4, 5, 9, 10, 12])
    assert runs(places, 0).tolist() == [0, 1, 2, 3, 4, 5]
    assert runs(places, 1).tolist() == [0, 1, 3]
    assert runs(places, 2).tolist() == [0]
    assert runs(places, 9).tolist() == []


def test_a_chain_of_the_last_tokens_of_an_answer_does_not_go_on_in_the_next():
    places = np.array([3, 4, 5, 9, 10])
    hits = list(bools("xxx.x", "x.xx.", "xxxxx"))
    assert chain_matches(places, hits[:2]).tolist() == bools("xx.", ".x.").tolist()
    assert chain_matches(places, hits).tolist() == bools("x", ".", "x").tolist()


@pytest.mark.parametrize("seed", range(4))
def test_the_mean_is_that_of_all_chains_one_by_one(seed):
    draw = np.random.default_rng(seed)
    right = draw.random((3, 80)) < 0.7
    places = np.flatnonzero(draw.random(80) < 0.8)
    matches = chain_matches(places, [row[places] for row in right])
    figures = chain_figures([matches])
    assert figures["mean_acceptance_length"] == pytest.approx(mean_chain(right, places.tolist()))


def test_without_a_chain_the_error_says_what_to_make():
    for matches in ([], [np.zeros((4, 0), bool)]):
        with pytest.raises(MlxspecError, match="mlxspec train data"):
            chain_figures(matches)
