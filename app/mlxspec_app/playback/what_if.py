"""Estimates the speed of a recorded run with another number of draft tokens.

A round with a chain of k draft tokens emits 1 + c1 + c1 c2 + ... + c1 ... ck tokens on average,
where ci is the share of chains whose i-th token was accepted, given that the token before it was.
The shares are those of the run. In a tree only the first child of each node counts, because a chain
would consist of these. The cost of a forward comes from the measurement between the replies, or
else from the forwards of the run with the same number of rows. Between two measured widths it is
interpolated linearly; outside them there is no estimate.

The estimate for deep positions is too good: they were verified only in rounds with deep drafts, and
many drafters draft deep when they are sure.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from mlxspec.trace.stats import total
from mlxspec_app.conversation.baseline import counted
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.rounds import Round, children_by_parent

MOST_DRAFTED = 16
_FEWEST_FORWARDS = 3
"""A width with fewer forwards than this does not count as measured."""


@dataclass(frozen=True)
class Position:
    """Acceptance at one position of the chain.

    `judged` rounds had a draft token at this position, with all tokens before it accepted;
    `accepted` of them accepted it too.
    """

    judged: int
    accepted: int


@dataclass(frozen=True)
class Expectation:
    """Estimate for rounds with a chain of `k` draft tokens.

    `tokens` are emitted per round, the bonus token included. `round_ms` is None outside the
    measured widths; `is_between` says that it is interpolated.
    """

    k: int
    tokens: float
    round_ms: float | None = None
    is_between: bool = False

    @property
    def tps(self) -> float | None:
        """tokens/s, without the prefill."""
        return self.tokens * 1e3 / self.round_ms if self.round_ms else None


@dataclass(frozen=True)
class Outlook:
    """Estimates from one run, whose measured speed is `tps` tokens/s.

    `expected` has one for each k from 1 to the deepest position that the run verified.
    """

    expected: tuple[Expectation, ...]
    tps: float


def outlooks(runs: Sequence[Sequence[Reply]]) -> list[Outlook]:
    """Return the estimates from each run; runs of one target on one machine share their costs."""
    setups = [_setup(replies) for replies in runs]
    found: list[Outlook] = []
    for own, setup in zip(runs, setups, strict=True):
        alike = [replies for replies, its in zip(runs, setups, strict=True) if its == setup]
        costs = _costs([reply for replies in alike for reply in replies])
        usual = counted(own)
        rounds = _rounds(usual)
        expected = expectations(positions(rounds), costs, drafting_ms(rounds))
        found.append(Outlook(tuple(expected), total(reply.stats for reply in usual).generation_tps))
    return found


def positions(rounds: Iterable[Round]) -> list[Position]:
    """Return the acceptance at each position of the chain, up to the deepest one verified."""
    judged = [0] * MOST_DRAFTED
    accepted = [0] * MOST_DRAFTED
    for round_ in rounds:
        if round_.draft is None:
            continue
        for index, was_accepted in enumerate(_chain(round_)[:MOST_DRAFTED]):
            judged[index] += 1
            accepted[index] += was_accepted
    depth = judged.index(0) if 0 in judged else MOST_DRAFTED
    return [Position(*pair) for pair in zip(judged[:depth], accepted[:depth], strict=True)]


def forward_costs(rounds: Iterable[Round]) -> dict[int, float]:
    """Return the median milliseconds of a forward by its number of rows, the root included.

    Widths with fewer than three forwards are left out.
    """
    by_rows: dict[int, list[float]] = {}
    for round_ in rounds:
        by_rows.setdefault(1 + len(round_.nodes), []).append(round_.verdict.ms)
    return {rows: median(ms) for rows, ms in by_rows.items() if len(ms) >= _FEWEST_FORWARDS}


def drafting_ms(rounds: Iterable[Round]) -> float:
    """Return the mean milliseconds of a draft; 0 without drafts."""
    spent = [round_.draft.ms for round_ in rounds if round_.draft is not None]
    return fmean(spent) if spent else 0.0


def expectations(
    positions: Sequence[Position], costs: Mapping[int, float], draft_ms: float = 0.0
) -> list[Expectation]:
    """Return the estimate for each k from 1 to the number of positions.

    `costs` are the milliseconds of a forward by its number of rows, `draft_ms` the milliseconds of
    drafting in every round.
    """
    found: list[Expectation] = []
    reach, tokens = 1.0, 1.0
    for k, position in enumerate(positions, start=1):
        reach *= position.accepted / position.judged
        tokens += reach
        forward_ms = _between(costs, k + 1)
        round_ms = forward_ms + draft_ms if forward_ms is not None else None
        found.append(Expectation(k, tokens, round_ms, k + 1 not in costs))
    return found


def best(found: Iterable[Expectation]) -> Expectation | None:
    """Return the fastest estimate, the smallest k among equals; None if no speed is known."""
    timed = [one for one in found if one.tps is not None]
    return max(timed, key=lambda one: (one.tps, -one.k), default=None)


def _chain(round_: Round) -> list[bool]:
    """Return whether each token on the path of first children was accepted, up to a rejection."""
    path = getattr(round_.verdict, "path", ())
    children = children_by_parent(round_.nodes)
    judged: list[bool] = []
    node = 0
    while node in children:
        node = children[node][0].index
        judged.append(node in path)
        if not judged[-1]:
            break
    return judged


def _rounds(replies: Iterable[Reply]) -> list[Round]:
    return [round_ for reply in replies for round_ in reply.rounds]


def _costs(replies: Sequence[Reply]) -> dict[int, float]:
    """Return the last measured cost curve, or without one the costs of the run's forwards."""
    measured = [reply.cost for reply in replies if reply.cost is not None]
    if not measured:
        return forward_costs(_rounds(replies))
    return dict(zip(measured[-1].widths, measured[-1].ms, strict=True))


def _setup(replies: Sequence[Reply]) -> tuple[str, ...]:
    """Return the settings on which the cost of a forward depends."""
    started = next((reply.started for reply in replies if reply.started is not None), None)
    if started is None:
        return ()
    return (
        started.target,
        started.device,
        started.blas,
        started.weights,
        started.cache,
        started.lossless,
    )


def _between(costs: Mapping[int, float], rows: int) -> float | None:
    """Return the cost of `rows` rows, interpolated linearly between the measured widths."""
    if rows in costs:
        return costs[rows]
    widths = sorted(costs)
    index = bisect_left(widths, rows)
    if index in (0, len(widths)):
        return None
    low, high = widths[index - 1], widths[index]
    share = (rows - low) / (high - low)
    return costs[low] + share * (costs[high] - costs[low])
