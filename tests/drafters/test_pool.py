"""The pool against trees drawn by hand."""

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec.device import backend
from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.search.growth import grow
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.drafters.table.drafter import TableDrafter
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.params import SamplingParams
from tests.support.adversaries import UniformChain
from tests.support.drafting import (
    KEY,
    SAMPLING,
    TURNS,
    Place,
    assert_valid_and_repeatable,
    round_of,
    shape_of,
)


class Told:
    """Remembers what it was told; subclasses propose."""

    num_top_tokens = 0

    def __init__(self, name):
        self.name, self.told = name, []

    def start(self, prompt, sampling, key):
        self.told.append((list(prompt), key.tolist()))

    def update(self, round):
        self.told.append(round)


class Fixed(Told):
    """Expects the same after every root, and knows it on the host."""

    def __init__(self, name, rows):
        super().__init__(name)
        self.rows = rows

    def propose(self, root, budget):
        return grow(root, self.cursor(root), budget)

    def cursor(self, root):
        return Place(self.name, self.rows)


class Device(Told):
    """Hands over a draft and knows nothing else."""

    def __init__(self, name, tokens, parents, probs=None):
        super().__init__(name)
        self.tokens, self.parents, self.probs = tokens, parents, probs

    def propose(self, root, budget):
        sources = [self.name] * len(self.tokens)
        return Draft.from_lists([root, *self.tokens], [-1, *self.parents], sources, self.probs)


def test_a_token_that_two_drafters_expect_is_one_node_of_the_surer_one():
    first = Fixed("first", {(): {1: 0.5, 2: 0.6}, (2,): {4: 0.9}})
    second = Fixed("second", {(): {1: 0.7, 3: 0.1}, (1,): {5: 0.9}})
    pool = PoolDrafter([first, second])
    draft = pool.propose(9, 8)
    tokens, parents, _ = shape_of(draft)
    assert sorted(zip(parents[1:], tokens[1:], strict=True)) == sorted(
        [(0, 1), (0, 2), (0, 3), (tokens.index(1), 5), (tokens.index(2), 4)]
    )
    sources = dict(zip(tokens[1:], draft.sources, strict=True))
    assert sources == {1: "second", 2: "first", 3: "second", 4: "first", 5: "second"}


def test_learns_from_expectations_that_were_not_proposed():
    pool = PoolDrafter([Fixed("a", {(): {1: 0.9}}), Fixed("b", {(): {2: 0.3}})])
    for _ in range(60):
        pool.update(round_of(pool.propose(9, 1), [2, 0], lambda path: ([], [])))
    assert shape_of(pool.propose(9, 1))[0] == [9, 2]


def test_learns_below_the_root_too():
    pool = PoolDrafter([Fixed("a", {(): {1: 0.9}, (1,): {3: 0.8}})])
    before = shape_of(pool.propose(9, 2))[2]
    for _ in range(60):
        pool.update(round_of(pool.propose(9, 2), [1, 4], lambda path: ([], [])))
    after = shape_of(pool.propose(9, 2))[2]
    assert after[1] < before[1] - 0.1


def test_learns_for_greedy_and_for_sampled_text_apart():
    pool = PoolDrafter([Fixed("a", {(): {1: 0.5}})])
    untouched = {}
    for sampling in (SamplingParams(temperature=0.0), SamplingParams(temperature=1.0)):
        pool.start([9], sampling, KEY)
        untouched[sampling.temperature] = pool.propose(9, 1).node_probs.item()
    assert untouched[1.0] < untouched[0.0]  # a draw agrees less often than the likeliest token
    for _ in range(60):
        pool.update(round_of(pool.propose(9, 1), [1, 0], lambda path: ([], [])))
    assert pool.propose(9, 1).node_probs.item() > untouched[1.0] + 0.1
    pool.start([9], SAMPLING, KEY)
    assert pool.propose(9, 1).node_probs.item() == untouched[0.0]


def test_a_token_is_less_likely_where_another_drafter_names_another():
    rows = {(): {1: 0.5}}
    together, silent, against = (
        PoolDrafter([Fixed("a", rows), Fixed("b", other)]).propose(9, 2)
        for other in (rows, {}, {(): {2: 0.5}})
    )
    assert together.node_probs.item() > silent.node_probs.item() == 0.5
    assert all(prob < 0.45 for prob in against.node_probs.tolist())


def test_merges_a_draft_from_the_device_at_the_cost_of_one_wait():
    device = Device("model", [1, 2, 3], [0, 1, 0], [0.9, 0.8, 0.1])
    pool = PoolDrafter([Fixed("host", {(): {1: 0.4, 4: 0.3}}), device])
    waits = backend.host_syncs()
    draft = pool.propose(9, 8)
    assert backend.host_syncs() - waits == 1
    tokens, parents, _ = shape_of(draft)
    edges = set(zip([tokens[parent] for parent in parents[1:]], tokens[1:], strict=True))
    assert edges == {(9, 1), (1, 2), (9, 3), (9, 4)}
    assert dict(zip(tokens[1:], draft.sources, strict=True)) == {
        1: "model",
        2: "model",
        3: "model",
        4: "host",
    }


def test_takes_even_odds_where_a_device_draft_gives_none():
    draft = PoolDrafter([Device("model", [1, 2], [0, 1])]).propose(9, 8)
    assert shape_of(draft) == ([9, 1, 2], [-1, 0, 1], [0.5, 0.5])


def test_refuses_a_draft_that_was_drawn_at_random():
    uniform = UniformChain(vocab_size=8)
    pool = PoolDrafter([SuffixDrafter(), uniform])
    pool.start([1, 2], SAMPLING, KEY)
    with pytest.raises(ValueError, match="'adversary' draws its tokens at random"):
        pool.propose(2, 4)


def test_tells_those_that_may_draw_at_random_to_choose_instead():
    device = Device("device", [4], [0])
    device.samples = True
    pool = PoolDrafter([SuffixDrafter(), device])
    assert device.samples is False
    assert not pool.drafters[0].samples


@pytest.mark.parametrize("drafters", [[], [SuffixDrafter(), SuffixDrafter()]])
def test_needs_drafters_of_different_names(drafters):
    with pytest.raises(ValueError, match="different names"):
        PoolDrafter(drafters)


def test_tells_every_drafter_everything_with_a_key_of_its_own():
    drafters = [Fixed("a", {}), Fixed("b", {})]
    pool = PoolDrafter(drafters)
    pool.start([1, 2], SAMPLING, mx.random.key(3))
    round = Round([2], [-1], [0], 5)
    pool.update(round)  # no propose before: the engine decodes plainly at a budget of zero
    (first, *rest), (second, *others) = (drafter.told for drafter in drafters)
    assert first[0] == second[0] == [1, 2]
    assert first[1] != second[1]
    assert rest == others == [round]


def test_a_round_without_a_draft_is_no_verdict_on_the_draft_before():
    pool, plain = PoolDrafter([Fixed("a", {(): {1: 0.9}})]), Round([2], [-1], [0], 5)
    pool.update(round_of(pool.propose(9, 1), [1, 0], lambda path: ([], [])))
    before = shape_of(pool.propose(9, 1))
    pool.start([1, 2], SAMPLING, KEY)  # the reply was cut off before the verdict
    pool.update(plain)
    assert shape_of(pool.propose(9, 1)) == before
    pool.update(round_of(pool.propose(9, 1), [1, 0], lambda path: ([], [])))
    judged = PoolDrafter([Fixed("a", {(): {1: 0.9}})])
    for _ in range(2):
        judged.update(round_of(judged.propose(9, 1), [1, 0], lambda path: ([], [])))
    pool.update(plain)
    assert shape_of(pool.propose(9, 1)) == shape_of(judged.propose(9, 1))


@pytest.mark.parametrize(
    ("make_drafter", "sources"),
    [
        pytest.param(SuffixDrafter, {"suffix"}, id="suffix"),
        pytest.param(lambda: TableDrafter(max_rows=5), {"table"}, id="table"),
        pytest.param(
            lambda: PoolDrafter([SuffixDrafter(), TableDrafter()]), {"suffix", "table"}, id="pool"
        ),
    ],
)
@settings(max_examples=50)
@given(TURNS, st.integers(0, 9))
def test_every_tree_is_valid_best_first_and_the_same_again(make_drafter, sources, turns, budget):
    assert_valid_and_repeatable(make_drafter, turns, budget, sources)
