"""What another number of drafted tokens would have given, expected from a recorded run.

A round with a chain of k drafted tokens emits 1 + c1 + c1 c2 + ... + c1 ... ck tokens on average,
where ci is the share of chains whose i-th token was accepted once the token before it was. The
shares are the run's own. Of a tree only the first choice at every node counts, for that is what a
chain would have held. Milliseconds are those measured between the replies, or else those that
forwards of so many rows took in them; between two measured widths a straight line is assumed,
beyond them nothing is.

Deep places flatter: they were judged only where the run drafted so deep, which many drafters do
when they are sure.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.rounds import Round, children_by_parent

MOST_DRAFTED = 16
_FEWEST_FORWARDS = 3
"""A width that fewer forwards had is not taken for measured."""


@dataclass(frozen=True)
class Position:
    """A place in the drafted chain.

    Attributes:
        judged: Rounds whose chain had a token here, behind accepted ones alone.
        accepted: Rounds in which that token was accepted.
    """

    judged: int
    accepted: int


@dataclass(frozen=True)
class Expectation:
    """What rounds of k drafted tokens would have given.

    Attributes:
        k: Drafted tokens in a chain.
        tokens: Emitted tokens per round, the target's own included.
        round_ms: Milliseconds of a round, or None where no width near it was measured.
        is_between: Whether the milliseconds lie between two widths that were measured.
    """

    k: int
    tokens: float
    round_ms: float | None = None
    is_between: bool = False

    @property
    def tps(self) -> float | None:
        """Tokens per second, the reading of the prompt left out."""
        return self.tokens * 1e3 / self.round_ms if self.round_ms else None


@dataclass(frozen=True)
class Outlook:
    """What a run leads to expect.

    Attributes:
        expected: For each k from 1 on, as far as the run judged any.
        tps: Its own tokens per second, as measured.
    """

    expected: tuple[Expectation, ...]
    tps: float


def outlooks(runs: Sequence[Sequence[Reply]]) -> list[Outlook]:
    """Return what each run leads to expect; runs of one target on one machine share their costs."""
    setups = [_setup(replies) for replies in runs]
    found: list[Outlook] = []
    for own, setup in zip(runs, setups, strict=True):
        alike = [replies for replies, its in zip(runs, setups, strict=True) if its == setup]
        costs = _costs([reply for replies in alike for reply in replies])
        rounds = _rounds(own)
        expected = expectations(positions(rounds), costs, drafting_ms(rounds))
        found.append(Outlook(tuple(expected), _speed(own)))
    return found


def positions(rounds: Iterable[Round]) -> list[Position]:
    """Return the places of the chain from the first on, as far as the run judged any."""
    judged = [0] * MOST_DRAFTED
    accepted = [0] * MOST_DRAFTED
    for round_ in rounds:
        if round_.draft is None:
            continue
        for place, was_accepted in enumerate(_chain(round_)[:MOST_DRAFTED]):
            judged[place] += 1
            accepted[place] += was_accepted
    known = judged.index(0) if 0 in judged else MOST_DRAFTED
    return [Position(*pair) for pair in zip(judged[:known], accepted[:known], strict=True)]


def forward_costs(rounds: Iterable[Round]) -> dict[int, float]:
    """Return the median milliseconds of a forward by its number of rows, the root included.

    Widths of which there were only one or two are left out.
    """
    by_rows: dict[int, list[float]] = {}
    for round_ in rounds:
        by_rows.setdefault(1 + len(round_.nodes), []).append(round_.verdict.ms)
    return {rows: median(ms) for rows, ms in by_rows.items() if len(ms) >= _FEWEST_FORWARDS}


def drafting_ms(rounds: Iterable[Round]) -> float:
    """Return the mean milliseconds spent on a draft; 0 without drafts."""
    spent = [round_.draft.ms for round_ in rounds if round_.draft is not None]
    return fmean(spent) if spent else 0.0


def expectations(
    places: Sequence[Position], costs: Mapping[int, float], draft_ms: float = 0.0
) -> list[Expectation]:
    """Return what each k from 1 on would have given, as far as the places go.

    Args:
        places: Acceptance by place.
        costs: Milliseconds of a forward by its number of rows.
        draft_ms: Milliseconds of drafting in every round.
    """
    found: list[Expectation] = []
    reach, tokens = 1.0, 1.0
    for k, place in enumerate(places, start=1):
        reach *= place.accepted / place.judged
        tokens += reach
        forward_ms = _between(costs, k + 1)
        round_ms = forward_ms + draft_ms if forward_ms is not None else None
        found.append(Expectation(k, tokens, round_ms, k + 1 not in costs))
    return found


def best(found: Iterable[Expectation]) -> Expectation | None:
    """Return the fastest, the shortest of equals; None where no speed is known."""
    timed = [one for one in found if one.tps is not None]
    return max(timed, key=lambda one: (one.tps, -one.k), default=None)


def _chain(round_: Round) -> list[bool]:
    """Return whether each token of the drafter's first choice was accepted, up to a rejection."""
    kept = getattr(round_.verdict, "path", ())
    children = children_by_parent(round_.nodes)
    judged: list[bool] = []
    node = 0
    while node in children:
        node = children[node][0].index
        judged.append(node in kept)
        if not judged[-1]:
            break
    return judged


def _rounds(replies: Iterable[Reply]) -> list[Round]:
    return [round_ for reply in replies for round_ in reply.rounds]


def _costs(replies: Sequence[Reply]) -> dict[int, float]:
    """Return what was measured on purpose, and where nothing was, what the forwards took."""
    measured = [reply.cost for reply in replies if reply.cost is not None]
    if not measured:
        return forward_costs(_rounds(replies))
    return dict(zip(measured[-1].widths, measured[-1].ms, strict=True))


def _setup(replies: Sequence[Reply]) -> tuple[str, ...]:
    """Return what a forward's cost depends on."""
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


def _speed(replies: Sequence[Reply]) -> float:
    tokens = sum(reply.stats.generated_tokens for reply in replies)
    spent_s = sum(reply.stats.total_s - reply.stats.prefill_s for reply in replies)
    return tokens / spent_s if spent_s > 0 else 0.0


def _between(costs: Mapping[int, float], rows: int) -> float | None:
    """Return the cost of so many rows, on a line between the measured widths around it."""
    if rows in costs:
        return costs[rows]
    widths = sorted(costs)
    place = bisect_left(widths, rows)
    if place in (0, len(widths)):
        return None
    low, high = widths[place - 1], widths[place]
    share = (rows - low) / (high - low)
    return costs[low] + share * (costs[high] - costs[low])
