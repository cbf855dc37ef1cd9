"""What events say of each token: p of the target at its own place, q of the drafter, and its kind.

The target's probabilities are computed in NumPy for every prefix of the text.
"""

import pytest

from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.trace.events import DraftVerified, PlainDecoded
from tests.support.adversaries import AlwaysRight, DrawnTree, RandomTrees
from tests.support.pairwise import each_value
from tests.support.tiny import make_engine, tiny_model
from tests.support.truth import Target

VOCAB = 8
MODEL = tiny_model(vocab_size=VOCAB)
TARGET = Target(MODEL)
PROMPT = [3, 7, 1, 3, 7, 1]
SAMPLING = {
    "greedy": SamplingParams(),
    "sampled": SamplingParams(temperature=1.3),
    "penalties": SamplingParams(temperature=1.5, top_k=6, presence_penalty=0.5),
}
DRAFTERS = {
    "always right": lambda: AlwaysRight(PROMPT + TARGET.greedy(PROMPT, 24)),
    "random trees": lambda: RandomTrees(VOCAB),
    "drawn tree": lambda: DrawnTree(VOCAB),
}


def rounds(drafter, sampling, seed=3):
    params = GenerationParams(
        max_tokens=20, num_draft_tokens=5, sampling=SAMPLING[sampling], seed=seed
    )
    engine = make_engine(MODEL, DRAFTERS[drafter]())
    drafted = ()
    for event in engine.generate(PROMPT, params):
        if isinstance(event, DraftVerified | PlainDecoded):
            yield drafted, event
            drafted = ()
        drafted = getattr(event, "nodes", drafted)


@each_value(sampling=SAMPLING, drafter=DRAFTERS)
def test_p_of_a_token_is_that_of_the_target_after_all_before_it(drafter, sampling):
    shown = SamplingParams(temperature=1.0) if sampling == "greedy" else SAMPLING[sampling]
    tokens, num_kept = list(PROMPT), 0
    for _, event in rounds(drafter, sampling):
        for token in event.emit:
            exact = TARGET.distribution(tuple(tokens), shown, len(PROMPT))
            assert token.target_prob == pytest.approx(exact[token.token], abs=1e-4)
            tokens.append(token.token)
        num_kept += len(getattr(event, "path", ()))
    assert num_kept > 2


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_kept_token_is_that_of_its_node_and_the_last_is_the_targets_own(drafter):
    kinds = set()
    for nodes, event in rounds(drafter, "sampled"):
        path = getattr(event, "path", ())
        by_index = {node.index: node for node in nodes}
        assert [token.token for token in event.emit[: len(path)]] == [
            by_index[index].token for index in path
        ]
        assert {token.kind for token in event.emit[: len(path)]} <= {"accepted"}
        for own in event.emit[len(path) :]:
            last = path[-1] if path else 0
            is_leaf = all(node.parent != last for node in nodes)
            assert own.kind == ("plain" if not nodes else "bonus" if is_leaf else "corrected")
            kinds.add(own.kind)
    assert "corrected" in kinds


class Sure(AlwaysRight):
    """Gives every node another probability of its own."""

    def propose(self, root, budget):
        draft = super().propose(root, budget)
        count = draft.tree.n_nodes - 1
        tokens, parents = draft.tree.tokens.tolist(), draft.tree.parents.tolist()
        return type(draft).from_lists(
            tokens, parents, draft.sources, [0.9 - 0.1 * node for node in range(count)]
        )


def test_q_of_a_kept_token_is_that_of_its_own_node():
    engine = make_engine(MODEL, Sure(PROMPT + TARGET.greedy(PROMPT, 24)))
    params = GenerationParams(max_tokens=12, num_draft_tokens=4)
    emits = [event.emit for event in engine.generate(PROMPT, params) if hasattr(event, "emit")]
    assert len(emits) == 3
    for emit in emits:
        *kept, own = [token.draft_prob for token in emit]
        assert kept == pytest.approx([0.9, 0.8, 0.7, 0.6][: len(kept)])
        assert own is None or len(kept) == len(emit) - 1 == 0
