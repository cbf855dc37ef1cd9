"""`mlxspec verify`: do drafts change what a model says, on this machine?

Greedy replies are compared with plain decoding token by token, with every cache; how large a gap
rounding explains is measured (see `measure/drift.py`). Samples are compared with the exact
distribution, with the first cache (see `sampled.py`).
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mlxspec.bench import sampled
from mlxspec.bench.arms import PLAIN, Arm, drafters_here, make_drafter, own_arms
from mlxspec.bench.prompts import Question
from mlxspec.bench.run import setup_of
from mlxspec.bench.verify_result import Agreement, CacheCheck, CheckResult, Parting
from mlxspec.budget import FixedBudget
from mlxspec.drafting.engines import make_drafter_context
from mlxspec.drafting.registry import DrafterContext
from mlxspec.engine.engine import Engine
from mlxspec.errors import Say, UnsupportedOperationError
from mlxspec.grammar.compiled import Grammars
from mlxspec.grammar.constraint import Constraint
from mlxspec.loading import LoadedModel
from mlxspec.measure.drift import Text, measure_drift
from mlxspec.measure.lossless import first_difference, proof_of
from mlxspec.measure.trial import Trial, prompt_tokens
from mlxspec.params import GenerationParams, Grammar, Options
from mlxspec.params.grammar import GrammarKind
from mlxspec.reply.continuation import Continuation
from mlxspec.reply.job import Job

_NUM_TEXTS = 2  # replies whose rows are measured for drift
_LENGTHS, _MAX_PREFIXES = (0, 8), 16  # of plain replies, after which samples start
_GRAMMARS: dict[GrammarKind, str] = {
    "json-schema": "a JSON schema",
    "regex": "a regular expression",
    "lark": "a grammar",
}

Progress = Callable[[Sequence[Any], str], Iterable[Any]]
"""Returns the items of a loop that a text describes, and shows how many are done."""


@dataclass(frozen=True)
class Plan:
    """Questions, caches and drafters to check, and the size of the check."""

    questions: Sequence[Question]  # whose first turns are the prompts
    caches: Sequence[Options]  # the settings of each kind of cache
    drafters: Sequence[str]  # words of `--arms`; none means all that need no download
    num_nodes: Sequence[int]  # numbers of draft nodes per round, used in turn
    max_tokens: int
    num_draws: int  # samples of each drafter
    grammar: Grammar | None = None

    def params(self, num_nodes: int) -> GenerationParams:
        """Return the settings of a greedy reply with `num_nodes` draft nodes per round."""
        return GenerationParams(
            max_tokens=self.max_tokens, num_draft_tokens=num_nodes, grammar=self.grammar
        )

    @property
    def num_samples(self) -> int:
        """Number of samples from one distribution."""
        return -(-self.num_draws // len(self.num_nodes))


@dataclass(frozen=True)
class GreedyCase:
    """A prompt, the name of its question, and its plain reply."""

    name: str
    prompt: tuple[int, ...]
    params: GenerationParams
    plain: tuple[int, ...]


def check(loaded: LoadedModel, plan: Plan, say: Say, progress: Progress) -> CheckResult:
    """Check a model with all caches and drafters of a plan; an interrupt says what was done."""
    tally: Counter[str] = Counter()
    try:
        return _check(loaded, plan, say, progress, tally)
    except KeyboardInterrupt:
        say(
            f"stopped; so far {tally['replies']} greedy replies compared with plain decoding, "
            f"{tally['wrong'] or 'none'} differ; {tally['samples']} samples drawn, not yet judged"
        )
        raise


def _check(
    loaded: LoadedModel, plan: Plan, say: Say, progress: Progress, tally: Counter[str]
) -> CheckResult:
    notes: list[str] = []
    contexts = contexts_of(loaded, plan.caches, say, notes)
    first, start = Checker(contexts[0], plan, progress, notes, tally), time.monotonic()
    cases = first.cases()  # first, so that an error does not come after minutes of other checks
    say(_estimate(time.monotonic() - start, first, len(contexts), len(cases)))
    caches = [_said(first.check_replies(), say)]
    distributions = first.check_distributions(cases)
    # one after the other, because each has its own drafters in memory
    for context in contexts[1:]:
        checker = Checker(context, plan, progress, notes, tally)
        caches.append(_said(checker.check_replies(), say))
    return CheckResult(
        setup=setup_of(contexts[0], plan.params(max(plan.num_nodes)), PLAIN),
        num_nodes=tuple(plan.num_nodes),
        caches=tuple(caches),
        distributions=tuple(distributions),
        notes=tuple(dict.fromkeys(notes)),
        grammar=_GRAMMARS[plan.grammar.kind] if plan.grammar else "",
    )


def _estimate(passed: float, checker: "Checker", num_caches: int, num_cases: int) -> str:
    """Return how long the whole check takes, after `passed` seconds for all plain replies."""
    tokens = sum(len(case.plain) for case in checker.greedy_cases) or 1
    arms = 1 + len(checker.drafters)
    samples = num_cases * checker.plan.num_samples * sampled.LENGTH
    seconds = passed / tokens * arms * (num_caches * tokens + samples)
    text = f"{round(seconds / 60)} minutes" if seconds >= 90 else f"{max(1, round(seconds))} s"
    return f"the whole check takes about {text}, at the speed of plain decoding"


def _said(found: CacheCheck, say: Say) -> CacheCheck:
    total = sum(each.num_replies for each in found.agreements)
    same = sum(each.num_same for each in found.agreements)
    wrong = sum(len(each.mistakes) for each in found.agreements)
    ties = total - same - wrong
    say(
        f"cache {found.cache}: {same} of {total} greedy replies are those of plain decoding"
        + (f", {ties} differ at a near-tie" if ties else "")
        + (f", {wrong} differ: NOT lossless" if wrong else "")
    )
    return found


def contexts_of(
    loaded: LoadedModel, caches: Sequence[Options], say: Say, notes: list[str]
) -> list[DrafterContext]:
    """Return a context for each kind of cache; `notes` gets those that the model refuses."""
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
        self,
        context: DrafterContext,
        plan: Plan,
        progress: Progress,
        notes: list[str],
        tally: Counter[str],
    ) -> None:
        """`notes` gets an entry for each question that is left out, `tally` what is compared."""
        self._tally = tally
        self.context, self.plan, self._progress, self._notes = context, plan, progress, notes
        self.drafters = list(plan.drafters) or drafters_here(context)
        self._budget = FixedBudget()  # drafts in every round: a plain round checks nothing
        self._cache = context.target.cache.describe()
        self._grammars = Grammars(context.engine.tokenizer)
        self._plain, *self._arms = own_arms([PLAIN, *self.drafters], context, self._budget)

    @cached_property
    def greedy_cases(self) -> list[GreedyCase]:
        """The questions that leave room for a reply, with their plain replies."""
        plan, length = self.plan, self.context.engine.context_length
        room = (
            plan.max_tokens
            + sampled.LENGTH
            + (sampled.MOST_FORCED if plan.grammar else 0)
            + max(plan.num_nodes)
        )
        cases: list[GreedyCase] = []
        for question in self._progress(plan.questions, f"{self._cache}: {PLAIN}"):
            name = f"{question.category} {question.id}"
            prompt = tuple(prompt_tokens(self.context.engine, question.turns[0]))
            if length is not None and len(prompt) + room > length:
                self._notes.append(f"{name} is skipped: it leaves no room for {room} tokens")
                continue
            # without nodes a grammar drafts nothing either: a forward for every token
            plain = self._plain.write(prompt, plan.params(0)).tokens
            params = plan.params(plan.num_nodes[len(cases) % len(plan.num_nodes)])
            cases.append(GreedyCase(name, prompt, params, plain))
        if not cases:
            raise ValueError(
                f"no question leaves room for {room} tokens in the context of {length}: give "
                "shorter --prompts or a smaller --max-tokens"
            )
        return cases

    def check_replies(self) -> CacheCheck:
        engine, cases = self.context.engine, self.greedy_cases
        texts = [
            Text.of(case.prompt, case.plain, engine.context_length) for case in cases[:_NUM_TEXTS]
        ]
        watched = self._progress(texts, f"{self._cache}: drift of rows")
        drift, agreements = measure_drift(self.context.target, watched), []
        for arm in self._arms:
            doing = self._progress(cases, f"{self._cache}: {arm.name}")
            agreements.append(check_replies(engine, arm, doing, drift.near_tie, self._tally))
        return CacheCheck(self._cache, drift, tuple(agreements))

    def cases(self) -> list[sampled.Case]:
        """Return the distributions to sample from, after prefixes of the plain replies."""
        prefixes = [
            (*found.prompt, *found.plain[:length])
            for length in _LENGTHS
            for found in self.greedy_cases
            if length < len(found.plain)
        ]
        watched = self._progress(prefixes[:_MAX_PREFIXES], f"{self._cache}: exact distributions")
        nodes, size = self.plan.num_nodes, self.plan.num_samples
        return sampled.cases_of(self.context.target, watched, nodes, size, self._constraint)

    def check_distributions(self, cases: Sequence[sampled.Case]) -> list[sampled.DistributionCheck]:
        """Compare samples of plain decoding and of all drafters with the exact distribution."""
        words = (PLAIN, *self.drafters)
        return [sampled.check_distribution(word, cases, self._draws(word)) for word in words]

    def _draws(self, word: str) -> Callable[[sampled.Case], Iterator[Trial]]:
        engine, drafter = self.context.engine, make_drafter(word, self.context)

        def draws(case: sampled.Case) -> Iterator[Trial]:
            doing = f"samples: {word}, {case.num_nodes} nodes a round"
            for seed in self._progress(case.seeds, doing):
                how: dict[str, Any] = {"budget": self._budget, "grammar": self.plan.grammar}
                yield sampled.draw(engine, drafter, case, seed, **how)
                self._tally["samples"] += 1

        return draws

    def _constraint(self, prompt: Sequence[int]) -> Constraint | None:
        """Return the constraint after a prompt, from a newly compiled grammar."""
        engine, params = self.context.engine, sampled.sample_params(self.plan.grammar)
        job = Job(0, list(prompt), params, matcher=self._grammars.matchers(params.grammar))
        return Continuation(job, self.context.target, engine.tokenizer).constrain()


def check_replies(
    engine: Engine,
    arm: Arm,
    cases: Iterable[GreedyCase],
    near_tie: float,
    tally: Counter[str],
) -> Agreement:
    """Compare the replies of a drafter with the plain ones; `near_tie` as in `first_difference`."""
    replies, partings = [], []
    for case in cases:
        reply = arm.write(case.prompt, case.params)
        replies.append(reply)
        found = first_difference(engine, case.prompt, reply.tokens, case.plain, near_tie=near_tie)
        tally["replies"] += 1
        tally["wrong"] += found is not None and not found.is_near_tie
        if found is not None:
            partings.append(Parting(case.name, proof_of(engine, len(reply.tokens), found)))
    return Agreement(
        drafter=arm.name,
        num_replies=len(replies),
        num_tokens=sum(len(reply.tokens) for reply in replies),
        drafted=sum(reply.stats["drafted"] for reply in replies),
        accepted=sum(reply.stats["accepted"] for reply in replies),
        partings=tuple(partings),
        faults=tuple(reply.fault for reply in replies if reply.fault),
    )
