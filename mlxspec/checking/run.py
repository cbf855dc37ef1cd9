"""The whole check: replies and rows with every cache, and samples with the first cache."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Protocol, TypeVar

from mlxspec.bench.arms import PLAIN, make_drafter, own_arms
from mlxspec.bench.machine import Setup, setup_of
from mlxspec.bench.prompts import Question
from mlxspec.bench.run import Runner
from mlxspec.bench.sample import Task
from mlxspec.budget import FixedBudget
from mlxspec.checking.greedy import Agreement, GreedyCase, check_replies
from mlxspec.checking.sampled import (
    LENGTH,
    MOST_FORCED,
    Case,
    DistributionCheck,
    Sampler,
    cases_of,
    check_distribution,
    sample_params,
)
from mlxspec.drafting.engines import make_drafter_context
from mlxspec.drafting.registry import DrafterContext, Say, candidates
from mlxspec.engine.engine import Engine
from mlxspec.errors import UnsupportedOperationError
from mlxspec.grammar.compiled import Grammars
from mlxspec.grammar.constraint import Constraint
from mlxspec.loading import LoadedModel
from mlxspec.measure.drift import Drift, Text, measure_drift
from mlxspec.params import Grammar, Options
from mlxspec.params.grammar import GrammarKind
from mlxspec.reply.continuation import Continuation

_NUM_TEXTS = 2
"""Number of replies whose rows are measured for drift."""

_LENGTHS, _MAX_PREFIXES = (0, 8), 16
"""Samples start after these numbers of tokens of a plain reply; the maximum number of prefixes."""

_GRAMMARS: dict[GrammarKind, str] = {
    "json-schema": "a JSON schema",
    "regex": "a regular expression",
    "lark": "a grammar",
}

T = TypeVar("T")


class Progress(Protocol):
    """Shows the progress of a loop."""

    def __call__(self, items: Sequence[T], doing: str) -> Iterable[T]:
        """Return the items, and show how many are done; `doing` describes the loop."""


@dataclass(frozen=True)
class Plan:
    """Questions, caches and drafters to check, and the size of the check.

    Attributes:
        questions: The first turns are the prompts.
        caches: Options with the settings of each kind of cache.
        drafters: Words of `--drafter`, a plus sign for a pool; empty for all that need no download.
        num_nodes: Numbers of draft nodes per round, used in turn.
        max_tokens: Maximum number of tokens of a greedy reply.
        num_draws: Number of samples with each drafter.
        grammar: The grammar of all replies and samples; None for any text.
    """

    questions: Sequence[Question]
    caches: Sequence[Options]
    drafters: Sequence[str]
    num_nodes: Sequence[int]
    max_tokens: int
    num_draws: int
    grammar: Grammar | None = None

    def task(self, num_nodes: int) -> Task:
        """Return the settings of a greedy reply with `num_nodes` draft nodes per round."""
        return Task(max_tokens=self.max_tokens, num_draft_tokens=num_nodes, grammar=self.grammar)

    @property
    def length(self) -> int:
        """Maximum number of tokens of a sample that are counted."""
        return LENGTH if self.grammar is None else LENGTH + MOST_FORCED


@dataclass(frozen=True)
class CacheCheck:
    """The results with one kind of cache; `agreements` has one entry per drafter."""

    cache: str
    drift: Drift
    agreements: tuple[Agreement, ...]


@dataclass(frozen=True)
class CheckResult:
    """The results of a check.

    Attributes:
        num_nodes: Numbers of draft nodes per round, used in turn.
        distributions: Samples with the first cache, one entry per drafter, plain decoding first.
        notes: Messages on caches and questions that were left out.
        grammar: Description of the grammar of all replies and samples; "" for none.
    """

    setup: Setup
    num_nodes: tuple[int, ...]
    caches: tuple[CacheCheck, ...]
    distributions: tuple[DistributionCheck, ...]
    notes: tuple[str, ...]
    grammar: str = ""


def check(loaded: LoadedModel, plan: Plan, say: Say, progress: Progress) -> CheckResult:
    """Check a model with all caches and drafters of a plan.

    Raises:
        MlxspecError: A drafter is missing, or does not fit this target.
        ValueError: No question fits the model, no cache does, or no distribution is worth a test.
    """
    notes: list[str] = []
    contexts = _contexts(loaded, plan.caches, say, notes)
    first = Checker(contexts[0], plan, progress, notes)
    clock = Estimate(time.monotonic, say)
    cases = first.cases()  # first, so that an error does not come after minutes of other checks
    clock.begun(first, len(contexts), len(cases))
    caches = [_said(first.check_replies(), say)]
    distributions = first.check_distributions(cases)
    # one after the other, because each has its own drafters in memory
    caches += [
        _said(Checker(context, plan, progress, notes).check_replies(), say)
        for context in contexts[1:]
    ]
    return CheckResult(
        setup=setup_of(first.context, plan.task(max(plan.num_nodes)), PLAIN),
        num_nodes=tuple(plan.num_nodes),
        caches=tuple(caches),
        distributions=distributions,
        notes=tuple(dict.fromkeys(notes)),
        grammar=_GRAMMARS[plan.grammar.kind] if plan.grammar else "",
    )


class Estimate:
    """Estimates the duration of the whole check from the time of the plain replies."""

    def __init__(self, clock: Callable[[], float], say: Say) -> None:
        """Start to count the seconds of `clock`."""
        self._clock, self._say, self._start = clock, say, clock()

    def begun(self, checker: "Checker", num_caches: int, num_cases: int) -> None:
        """Report the estimate after each question was answered once, without drafts."""
        passed = self._clock() - self._start
        tokens = sum(len(case.plain) for case in checker.greedy_cases) or 1
        replies = num_caches * (1 + checker.num_drafters) * tokens
        samples = num_cases * checker.num_samples * (1 + checker.num_drafters) * LENGTH
        seconds = passed / tokens * (replies + samples)
        self._say(
            f"the whole check takes about {duration(seconds)}, at the speed of plain decoding"
        )


def duration(seconds: float) -> str:
    """Return a text of seconds or minutes, as coarse as an estimate."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} minutes"


def _said(found: CacheCheck, say: Say) -> CacheCheck:
    """Report the verdict on one cache, and return the results."""
    num_replies = sum(each.num_replies for each in found.agreements)
    partings = [parting for each in found.agreements for parting in each.partings]
    real = [parting for parting in partings if not parting.difference.is_near_tie]
    same = (
        f"{num_replies - len(partings)} of {num_replies} greedy replies are those of plain decoding"
    )
    ties = (
        f", {len(partings) - len(real)} differ at a near-tie" if len(partings) > len(real) else ""
    )
    wrong = f", {len(real)} differ: NOT lossless" if real else ""
    say(f"cache {found.cache}: {same}{ties}{wrong}")
    return found


def _contexts(
    loaded: LoadedModel, caches: Sequence[Options], say: Say, notes: list[str]
) -> list[DrafterContext]:
    contexts = []
    for options in caches:
        try:
            contexts.append(make_drafter_context(loaded, options, say))
        except UnsupportedOperationError as error:
            notes.append(f"a cache is skipped: {error}")
    if not contexts:
        raise ValueError(f"no kind of cache fits this model: {'; '.join(notes)}")
    return contexts


class Checker:
    """Checks one target with one kind of cache."""

    def __init__(
        self, context: DrafterContext, plan: Plan, progress: Progress, notes: list[str]
    ) -> None:
        """Prepare; `notes` gets an entry for each question that is left out.

        Raises `MlxspecError` if a drafter is missing or does not fit this target, and `ValueError`
        if no question fits the model.
        """
        self.context = context
        self._budget = FixedBudget()  # drafts in every round: a plain round checks nothing
        self._plan = plan
        self._progress = progress
        self._cache = context.target.cache.describe()
        self._drafters = list(plan.drafters) or _drafters_here(context)
        self._grammars = Grammars(context.engine.tokenizer)
        self._questions = _fitting(context.engine, plan, notes)
        self._plain, *self._arms = own_arms([PLAIN, *self._drafters], context, self._budget)

    @property
    def num_drafters(self) -> int:
        return len(self._drafters)

    @property
    def num_samples(self) -> int:
        """Number of samples from one distribution."""
        return -(-self._plan.num_draws // len(self._plan.num_nodes))

    @cached_property
    def greedy_cases(self) -> list[GreedyCase]:
        """The questions with their plain replies."""
        write = self._plain.write
        # without nodes a grammar drafts nothing either: a forward for every token
        plain = self._plan.task(0)
        watched = self._progress(self._questions, f"{self._cache}: {PLAIN}")
        return [replace(found, plain=write(found.prompt, plain).tokens) for found in watched]

    @cached_property
    def drift(self) -> Drift:
        """The drift of rows, over the first replies."""
        room = self.context.engine.context_length
        texts = [
            Text.of(found.prompt, found.plain, room) for found in self.greedy_cases[:_NUM_TEXTS]
        ]
        watched = self._progress(texts, f"{self._cache}: drift of rows")
        return measure_drift(self.context.target, watched)

    def check_replies(self) -> CacheCheck:
        """Compare the greedy replies of all drafters with plain ones."""
        engine, near_tie = self.context.engine, self.drift.near_tie
        agreements = []
        for arm in self._arms:
            watched = self._progress(self.greedy_cases, f"{self._cache}: {arm.name}")
            agreements.append(check_replies(engine, arm, watched, near_tie))
        return CacheCheck(self._cache, self.drift, tuple(agreements))

    def cases(self) -> list[Case]:
        """Return the distributions to sample from, after prefixes of the plain replies.

        Raises `ValueError` if no distribution is worth a test.
        """
        num_nodes = self._plan.num_nodes
        prefixes = [
            (*found.prompt, *found.plain[:length])
            for length in _LENGTHS
            for found in self.greedy_cases
            if length < len(found.plain)
        ]
        watched = self._progress(prefixes[:_MAX_PREFIXES], f"{self._cache}: exact distributions")
        return cases_of(self.context.target, watched, num_nodes, self.num_samples, self._constraint)

    def check_distributions(self, cases: Sequence[Case]) -> tuple[DistributionCheck, ...]:
        """Compare samples of plain decoding and of all drafters with the exact distribution."""
        engine, checks = self.context.engine, []
        for word in (PLAIN, *self._drafters):
            drafter = make_drafter(word, self.context)
            sampler = Sampler(engine, drafter, self._budget, self._plan.grammar)
            checks.append(check_distribution(sampler, word, cases, partial(self._seeds, word)))
        return tuple(checks)

    def _constraint(self, prompt: Sequence[int]) -> Constraint | None:
        """Return the constraint after a prompt, from a newly compiled grammar."""
        engine, params = self.context.engine, sample_params(self._plan.grammar)
        begun = Continuation(prompt, params, self.context.target, engine.tokenizer)
        return begun.constrain(self._grammars.matchers(params.grammar), engine.tokenizer)

    def _seeds(self, drafter: str, case: Case) -> Iterable[int]:
        return self._progress(case.seeds, f"samples: {drafter}, {case.num_nodes} nodes a round")


def _drafters_here(context: DrafterContext) -> list[str]:
    """Return the drafters that need no download, as words for `own_arms`."""
    words = [word.replace(",", "+") for word in candidates(context.files) if word != "none"]
    return [*words, "model"] if context.draft_model and "model" not in words else words


def _fitting(engine: Engine, plan: Plan, notes: list[str]) -> list[GreedyCase]:
    """Return every question that leaves room for a reply, without its plain reply."""
    needed = plan.max_tokens + plan.length + max(plan.num_nodes)
    most = None if engine.context_length is None else engine.context_length - needed
    fitting: list[GreedyCase] = []
    for question in plan.questions:
        name = f"{question.category} {question.id}"
        messages = [{"role": "user", "content": question.turns[0]}]
        prompt = tuple(Runner(engine, [], PLAIN).prompt(messages))
        if most is not None and len(prompt) > most:
            notes.append(f"{name} is skipped: it leaves no room for {needed} tokens")
            continue
        num_nodes = plan.num_nodes[len(fitting) % len(plan.num_nodes)]
        fitting.append(GreedyCase(name, prompt, plan.task(num_nodes)))
    if not fitting:
        raise ValueError(
            f"no question leaves room for {needed} tokens in the context of "
            f"{engine.context_length}: give shorter --prompts or a smaller --max-tokens"
        )
    return fitting
