"""The engine with a budget that cuts, pads, skips rounds and looks ahead: nobody may notice."""

import itertools
import random

import mlx.core as mx
import pytest

from mlxspec.budget import CostBook, CostCurve, FixedBudget, MeasuredBudget
from mlxspec.budget import budget as budget_module
from mlxspec.budget.cost import quick_costs
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.draft_model import DraftModelDrafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.drafters.table.drafter import TableDrafter
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.trace.events import DraftVerified, PlainDecoded
from tests.support.adversaries import AlwaysRight, RandomTrees, UniformChain
from tests.support.row_count import RowCount
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.tiny_heads_eagle import eagle3_drafter
from tests.support.truth import Target

MODEL = tiny_model()
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
TRUTHS = {kind: Target(MODEL, kind).greedy(PROMPT, 40) for kind in ("full", "rotating", "int8")}
REPLY = TRUTHS["full"]
FULL = PROMPT + REPLY
DRAFTERS = {
    "none": lambda target: NoDrafter(),
    "always right": lambda target: AlwaysRight(FULL),
    "random trees": lambda target: RandomTrees(24),
    "pool": lambda target: PoolDrafter([SuffixDrafter(), TableDrafter()]),
    "model": lambda target: DraftModelDrafter(Decoder(tiny_model(seed=6)), 24),
    "eagle3": eagle3_drafter,
}
each_drafter = pytest.mark.parametrize("drafter", DRAFTERS)


class AnyBudget(FixedBudget):
    """Asks, cuts and pads at random."""

    looks_ahead = True

    def begin(self, *setting):
        self._random, self._rows = random.Random(7), {}
        self.asked = []

    def ask(self, limit):
        self.asked.append(self._random.choice([0, 0, self._random.randint(0, limit)]))
        return self.asked[-1]

    def cut(self, draft):
        if draft.path_probs is None:
            return draft
        return draft.first(self._random.randint(0, draft.tree.n_nodes - 1))

    def rows(self, n_nodes):
        return n_nodes if n_nodes == 1 else n_nodes + 3


class Never(FixedBudget):
    """Leaves the drafter alone."""

    looks_ahead = True

    def ask(self, limit):
        return 0


def engine_with(budget, drafter="none", kind="full"):
    return make_engine(MODEL, None, kind, make_drafter=DRAFTERS[drafter], budget=budget)


@each_drafter
@pytest.mark.parametrize(
    ("budget", "kind"), [(AnyBudget, "rotating"), (Never, "int8"), (MeasuredBudget, "full")]
)
def test_the_greedy_tokens_do_not_depend_on_the_budget(budget, drafter, kind):
    engine = engine_with(budget(), drafter, kind)
    params = GenerationParams(max_tokens=14, num_draft_tokens=6)
    for _ in range(2):
        assert emitted(engine.generate(PROMPT, params)) == TRUTHS[kind][:14]


@each_drafter
def test_after_each_round_the_history_is_all_but_the_last_token(drafter):
    engine = engine_with(AnyBudget(), drafter)
    tokens = list(PROMPT)
    for event in engine.generate(PROMPT, GenerationParams(max_tokens=24, num_draft_tokens=5)):
        tokens += emitted([event])
        if hasattr(event, "emit"):
            assert list(engine.target.history) == tokens[:-1]
            assert engine.target.cache.offset == len(tokens) - 1
    assert engine.target.cache.num_staged == 0


@pytest.mark.parametrize("drafter", ["none", "eagle3"])
def test_a_cancelled_reply_has_its_last_token_pending(drafter):
    for rounds in (0, 1, 4):
        engine = engine_with(Never(), drafter)
        left = iter([False] * (1 + rounds))
        params = GenerationParams(max_tokens=30, num_draft_tokens=5)
        events = engine.generate(PROMPT, params, should_stop=lambda it=left: next(it, True))
        told = emitted(events)
        assert told == REPLY[:rounds]
        assert list(engine.target.history) == [*PROMPT, *told][:-1]
        assert emitted(engine.generate([*PROMPT, *told], params)) == REPLY[rounds : rounds + 30]


def test_an_error_while_a_round_is_ahead_leaves_an_engine_that_replies_as_new(monkeypatch):
    engine = engine_with(Never())
    events = engine.generate(PROMPT, GenerationParams(max_tokens=20))
    list(itertools.islice(events, 5))
    calls, wait = [], mx.eval
    monkeypatch.setattr(mx, "eval", lambda *arrays: calls.append(wait(*arrays)) or raise_())
    with pytest.raises(RuntimeError, match="no memory"):
        list(events)
    monkeypatch.undo()
    assert emitted(engine.generate(PROMPT, GenerationParams(max_tokens=20))) == REPLY[:20]


def raise_():
    raise RuntimeError("no memory")


@pytest.mark.parametrize("place", [0, 3])
def test_a_stop_token_ends_the_reply_though_the_next_round_has_begun(place):
    engine = engine_with(Never())
    engine.tokenizer.eos_token_ids = (REPLY[place],)
    events = list(engine.generate(PROMPT, GenerationParams()))
    first = REPLY.index(REPLY[place])
    assert emitted(events) == REPLY[: first + 1]
    assert list(engine.target.history) == [*PROMPT, *REPLY[:first]]


# ---- one forward, one wait -------------------------------------------------------------------


@pytest.mark.parametrize("drafter", ["none", "pool", "model", "eagle3"])
def test_a_round_waits_for_the_device_once(drafter, monkeypatch):
    engine = engine_with(AnyBudget(), drafter)
    waits, rounds = [], 0
    monkeypatch.setattr(mx, "eval", lambda *arrays, wait=mx.eval: (waits.append(1), wait(*arrays)))
    for event in engine.generate(PROMPT, GenerationParams(max_tokens=30, num_draft_tokens=5)):
        if hasattr(event, "emit"):
            rounds += 1
            if rounds == 1:  # a draft model reads the prompt before
                waits[:] = [1]
    assert len(waits) == rounds > 5


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_plain_rounds_are_one_ahead_and_no_forward_is_lost_at_the_end(temperature, forwards):
    engine = engine_with(Never(), "always right")
    params = GenerationParams(max_tokens=12, sampling=SamplingParams(temperature=temperature))
    before = []
    for event in engine.generate(PROMPT, params):
        if isinstance(event, PlainDecoded):
            before.append(forwards.of(engine.target.model) - 1)
    assert before == [*range(2, 13), 12]


def test_rows_are_padded_and_no_event_knows_it():
    class Padding(FixedBudget):
        def rows(self, n_nodes):
            return 16

    engine = engine_with(Padding(), "always right")
    with RowCount(2) as count:
        events = list(engine.generate(PROMPT, GenerationParams(max_tokens=30, num_draft_tokens=5)))
    verified = [event for event in events if isinstance(event, DraftVerified)]
    assert emitted(events) == REPLY[:30]
    assert all(event.rollback == 0 for event in verified)
    assert count.rows == [len(PROMPT) - 1 + 16 * len(verified)] * 2
    assert events[-1].stats["mean_rows"] == 6


def test_a_sampled_text_does_not_depend_on_when_the_drafter_is_asked():
    """A plain round draws as it always does; so does one of which the draft was cut to nothing."""
    params = GenerationParams(max_tokens=30, sampling=SamplingParams(temperature=1.0), seed=4)
    plain = emitted(engine_with(FixedBudget()).generate(PROMPT, params))
    assert emitted(engine_with(Never(), "always right").generate(PROMPT, params)) == plain


@pytest.mark.parametrize("mode", ["greedy", "sampled", "exact"])
@pytest.mark.parametrize("drafter", ["always right", "pool", "random trees"])
def test_plain_rounds_for_comparison_change_no_text_and_need_no_forward_of_their_own(
    mode, drafter, monkeypatch, forwards
):
    monkeypatch.setattr(budget_module, "_COMPARED", 9.0)  # otherwise they are rare
    monkeypatch.setattr(budget_module, "_APART", 2)
    sampling = SamplingParams(temperature=float(mode == "sampled"))
    params = GenerationParams(
        max_tokens=40, num_draft_tokens=2, seed=4, sampling=sampling, exact=mode == "exact"
    )
    wanted = emitted(engine_with(FixedBudget()).generate(PROMPT, params))
    costs = CostBook()
    costs.add(0, CostCurve({1: 1e3, 2: 1e3, 4: 1e3}))  # of such a forward, any draft pays
    engine = engine_with(MeasuredBudget(costs), drafter)
    engine.budget.compares = True
    before = forwards.of(engine.target.model)
    events = list(engine.generate(PROMPT, params))
    assert emitted(events) == wanted
    rounds = [event for event in events if hasattr(event, "emit")]
    kinds = "".join("P" if isinstance(event, PlainDecoded) else "d" for event in rounds)
    assert "dP" in kinds
    assert forwards.of(engine.target.model) - before == len(rounds) + 1  # one reads the prompt


@pytest.mark.parametrize("budget", [Never, AnyBudget])
def test_penalties_count_the_token_of_the_round_before(budget):
    """It is not known yet where a round is begun ahead, so such a round is not."""
    sampling = SamplingParams(repetition_penalty=1.6, presence_penalty=1.0, frequency_penalty=0.8)
    truth, tokens = Target(MODEL), list(PROMPT)
    for _ in range(20):
        tokens.append(int(truth.distribution(tuple(tokens), sampling, len(PROMPT)).argmax()))
    assert tokens[len(PROMPT) :] != REPLY[:20]
    engine = engine_with(budget(), "random trees")
    params = GenerationParams(max_tokens=20, num_draft_tokens=5, sampling=sampling)
    assert emitted(engine.generate(PROMPT, params)) == tokens[len(PROMPT) :]


def test_the_joint_law_holds_where_the_number_of_nodes_changes():
    """Two sampled tokens of an honest chain, drawn in rounds of any size."""
    model = tiny_model(vocab_size=4, seed=2)
    sampling = SamplingParams(temperature=5.0)  # no outcome is rare
    truth, prompt, draws = Target(model), [1, 2], 300
    engine = make_engine(model, UniformChain(4, length=2), budget=AnyBudget())
    counts = dict.fromkeys(itertools.product(range(4), repeat=2), 0)
    for seed in range(draws):
        params = GenerationParams(max_tokens=3, sampling=sampling, seed=seed, num_draft_tokens=5)
        counts[tuple(emitted(engine.generate(prompt, params))[:2])] += 1
    chi_square = 0.0
    for first, second in counts:
        prob = truth.distribution(tuple(prompt), sampling, 2)[first]
        prob *= truth.distribution((*prompt, first), sampling, 2)[second]
        chi_square += (counts[first, second] - draws * prob) ** 2 / (draws * prob)
    assert chi_square < 15 + 4 * 30**0.5


# ---- measuring at first use ------------------------------------------------------------------


def timed(monkeypatch, seconds, most=32):
    """Let every forward of n rows take seconds(n): the curve, the time taken, and the forwards."""
    now, widths = [0.0], []

    def forward(width):
        widths.append(width)
        now[0] += seconds(width)

    monkeypatch.setattr("mlxspec.budget.cost.verify_forward", lambda decoder: forward)
    return quick_costs(None, most, clock=lambda: now[0]).ms, now[0], widths


def test_a_fast_machine_is_measured_at_every_edge_that_a_round_has(monkeypatch):
    ms, _, widths = timed(monkeypatch, lambda width: 0.001)
    assert ms.keys() == {1, 2, 3, 4, 5, 8, 9, 10, 12, 15, 16, 20, 24, 32}
    assert ms[16] == pytest.approx(1.0)
    assert all(widths.count(width) == 2 + (width == 1) for width in ms)
    assert max(timed(monkeypatch, lambda width: 0.001, most=10)[0]) == 10


@pytest.mark.parametrize(
    ("seconds", "longest", "timed_at_least"),
    [
        pytest.param(lambda width: 0.05, 1.8, {1, 2, 4}, id="a second"),
        pytest.param(lambda width: 0.08 * width, 1.8, {1, 2, 4}, id="rows cost"),
        pytest.param(lambda width: 0.3, 4.7, {1, 2, 4, 8, 16, 32}, id="slow: time for the shape"),
        pytest.param(lambda width: 1.5 * width, 4.6, {1}, id="what takes too long is not begun"),
        pytest.param(lambda width: 9.0, 18.1, {1}, id="one row always"),
    ],
)
def test_measuring_is_bounded(monkeypatch, seconds, longest, timed_at_least):
    ms, taken, _ = timed(monkeypatch, seconds)
    assert taken < longest
    assert timed_at_least <= ms.keys()
    assert ms[1] == pytest.approx(1e3 * seconds(1))


def test_the_shape_is_timed_twice_before_any_edge(monkeypatch):
    _, _, widths = timed(monkeypatch, lambda width: 0.06)
    assert all(widths.count(width) >= 2 for width in (1, 2, 4, 8, 16, 32))


def test_measuring_leaves_the_decoder_as_it_was():
    engine = engine_with(FixedBudget())
    engine.target.observe(PROMPT)
    before = engine.target.next_logits().tolist()
    assert quick_costs(engine.target, 8).ms.keys() >= {1, 2, 4, 8}
    assert list(engine.target.history) == PROMPT
    assert engine.target.cache.num_staged == 0
    assert engine.target.next_logits().tolist() == before
