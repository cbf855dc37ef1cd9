"""Checks whether drafts change the output of the default model: `mlxspec verify` in limited time.

If time is short, the end of each list is left out: of the questions, then of the samples. The
figures include the numbers of those that were done.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from mlxspec.bench.arms import PLAIN
from mlxspec.bench.machine import setup_of
from mlxspec.bench.prompts import choose_questions, read_questions
from mlxspec.checking.greedy import Agreement
from mlxspec.checking.run import CacheCheck, Checker, CheckResult, Plan
from mlxspec.checking.sampled import DistributionCheck
from mlxspec.checking.verdict import verdict
from mlxspec.drafting.engines import make_drafter_context
from mlxspec.drafting.registry import DrafterContext, candidates
from mlxspec.loading import LoadedModel, load_model
from mlxspec.params import Options
from mlxspec.report.allowance import Allowance, Finding

_NUM_NODES = (4, 12)
_MAX_TOKENS, _NUM_DRAWS = 48, 400
_WORK, _GREEDY = 0.75, 0.5  # shares of the time; the rest is for lists that take longer

T = TypeVar("T")


class Shares:
    """Gives every list an equal share of the remaining time, and stops the list when that ends."""

    def __init__(self, time: Allowance, num_lists: int) -> None:
        self.give(time, num_lists)

    def give(self, time: Allowance, num_lists: int) -> None:
        """Start again, with this time for `num_lists` lists."""
        self._time, self._num_lists = time, num_lists

    def __call__(self, items: Sequence[T], doing: str) -> Iterable[T]:
        share = self._time.share(self._num_lists)
        self._num_lists = max(self._num_lists - 1, 1)
        return share.within(items)


def measure(time: Allowance) -> Iterator[Finding]:
    """Yield the greedy replies, the samples and the verdict."""
    yield from check_within(time, load_model())


def check_within(time: Allowance, loaded: LoadedModel) -> Iterator[Finding]:
    """Yield the same as `measure`, for any model."""
    context = make_drafter_context(loaded, Options(), lambda line: None)
    drafters = drafters_of(context)
    plan, time = _plan(drafters), time.first(_WORK)
    notes: list[str] = []
    shares = Shares(time.first(_GREEDY), len(drafters) + 2)
    checker = Checker(context, plan, shares, notes)
    cache = checker.check_replies()
    yield "greedy", _greedy_dict(cache)
    shares.give(time, 1 + (len(drafters) + 1) * len(_NUM_NODES))
    checks = checker.check_distributions(checker.cases())
    yield "sampled", [_check_dict(check, len(checks)) for check in checks]
    setup = setup_of(context, plan.task(max(_NUM_NODES)), PLAIN)
    result = CheckResult(setup, _NUM_NODES, (cache,), checks, tuple(notes))
    found = verdict(result)
    yield "verdict", found.kind
    yield "verdict_text", found.text
    yield "notes", notes


def drafters_of(context: DrafterContext) -> list[str]:
    """Return the drafters that need no download for a target, as words of `--arms`."""
    return [word.replace(",", "+") for word in candidates(context.files) if word != "none"]


def _plan(drafters: Sequence[str]) -> Plan:
    questions = choose_questions(read_questions(), limit=1)
    return Plan(questions, [Options()], drafters, _NUM_NODES, _MAX_TOKENS, _NUM_DRAWS)


def _greedy_dict(found: CacheCheck) -> dict[str, Any]:
    return {
        "largest_drift": found.drift.largest,
        "near_tie": found.drift.near_tie,
        "drafters": {
            agreement.drafter: agreement_dict(agreement) for agreement in found.agreements
        },
    }


def agreement_dict(found: Agreement) -> dict[str, Any]:
    """Return the comparison of a drafter's greedy replies with plain decoding, ready for JSON."""
    return {
        "replies": found.num_replies,
        "the_same": found.num_same,
        "tokens": found.num_tokens,
        "drafted": found.drafted,
        "accepted": found.accepted,
        "gaps": [
            parting.difference.gap for parting in found.partings
        ],  # null where one of the two ends
        "faults": len(found.faults),
    }


def _check_dict(check: DistributionCheck, num_checks: int) -> dict[str, Any]:
    return {
        "drafter": check.drafter,
        "draws": check.fit.num_draws,
        "chi_square": check.fit.chi_square,
        "freedom": check.fit.freedom,
        "p": check.fit.p_value,
        "is_off": check.is_off(num_checks),
        "drafted": check.drafted,
        "accepted": check.accepted,
    }
