"""What a target verifies is asked before a reply begins: trees, chains, or no draft.

A target that takes chains only, or none, fails where it gets more. Its text is that of plain
decoding, and its joint law that of the target computed in NumPy.
"""

from dataclasses import replace

import mlx.core as mx
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.draft_model import DraftModelDrafter
from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.drafts.draft import Draft
from mlxspec.errors import UnsupportedOperationError
from mlxspec.measure.chi_square import fit
from mlxspec.params import FREE, GenerationParams
from tests.support.adversaries import Adversary, DrawnTree, Duplicates, RandomTrees
from tests.support.limited_targets import LimitedModel, verifying
from tests.support.pairwise import each_value
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.tiny_heads_eagle import eagle3_drafter, eagle_drafter
from tests.support.tiny_heads_exit import exit_drafter
from tests.support.tiny_heads_medusa import medusa_drafter
from tests.support.truth import Target
from tests.verify.test_joint_distribution import (
    DRAWS,
    EXACT,
    LEAST_P,
    LENGTH,
    MODEL,
    SAMPLING,
    draw,
)

VOCAB = 24
TARGET = tiny_model(vocab_size=VOCAB)
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
GREEDY = {kind: Target(TARGET, kind).greedy(PROMPT, 20) for kind in ("full", "rotating")}


DRAFTERS = {
    "random trees": lambda target: RandomTrees(VOCAB),
    "duplicates": lambda target: Duplicates(VOCAB),
    "drawn trees": lambda target: DrawnTree(VOCAB),
    "model": lambda target: DraftModelDrafter(Decoder(tiny_model(vocab_size=VOCAB, seed=6)), VOCAB),
    "medusa": medusa_drafter,
    "eagle": eagle_drafter,
    "eagle3": eagle3_drafter,
    "pool": lambda target: PoolDrafter([SuffixDrafter(), medusa_drafter(target)]),
}


@each_value(drafter=DRAFTERS, support=["chain", "none"], kind=GREEDY)
def test_greedy_text_is_that_of_plain_decoding(drafter, support, kind):
    model = LimitedModel(TARGET, support)
    engine = make_engine(model, None, kind, make_drafter=DRAFTERS[drafter])
    engine.target.observe(PROMPT[:-1])
    params = GenerationParams(max_tokens=20, num_draft_tokens=6)
    with verifying(engine):
        events = list(engine.generate(PROMPT, params))
    assert emitted(events) == GREEDY[kind]
    num_drafted = sum(len(event.nodes) for event in events if event.t == "draft")
    assert (num_drafted > 0) == (support == "chain")


def test_the_first_tokens_follow_the_joint_law_over_chains_cut_from_trees():
    engine = make_engine(LimitedModel(MODEL, "chain"), DrawnTree(4))
    drawn, kept = [], 0
    for seed in range(DRAWS):
        params = GenerationParams(
            max_tokens=LENGTH + 4, sampling=SAMPLING, seed=seed, num_draft_tokens=4
        )
        text, num_kept = draw(engine, params)
        drawn.append(text)
        kept += num_kept
    assert fit(drawn, EXACT).p_value > LEAST_P
    assert kept > DRAWS / 10


class BeyondTheCut(Adversary):
    """A tree whose second branch holds a token that does not exist."""

    def propose(self, root, budget):
        draft = Draft.from_lists([root, 1, 2], [-1, 0, 0], ["a", "b"])
        tree = replace(draft.tree, tokens=mx.array([root, 1, VOCAB], mx.int32))
        return replace(draft, tree=tree)


def test_a_fault_in_what_is_cut_off_is_refused_too():
    engine = make_engine(LimitedModel(TARGET, "chain"), BeyondTheCut())
    with pytest.raises(ValueError, match="node 2 holds token 24; allowed are 0 to 23"):
        list(engine.generate(PROMPT, GenerationParams(max_tokens=8)))


def test_an_early_exit_refuses_a_target_without_trees():
    with pytest.raises(UnsupportedOperationError, match="needs a target that verifies draft trees"):
        exit_drafter(Decoder(LimitedModel(TARGET, "chain")))


def test_of_a_drafter_only_chains_are_asked_and_its_limits_stay():
    class Asked(RandomTrees):
        limits, branching = FREE, set()

        def propose(self, root, budget):
            self.branching.add(self.limits.branching)
            return super().propose(root, budget)

    drafter = Asked(VOCAB)
    list(make_engine(LimitedModel(TARGET, "chain"), drafter).generate(PROMPT))
    assert drafter.branching == {1}
    assert drafter.limits == FREE
