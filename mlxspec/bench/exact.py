"""`mlxspec verify --exact`: are drafted replies those of plain decoding, to the last bit?

Tokens and the logits that each was drawn from are compared, greedy and sampled with the same seed.
No difference is excused. Beside that it counts the replies that differ without exact decoding.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, ClassVar

import mlx.core as mx
import numpy as np

from mlxspec.bench.arms import PLAIN, OwnArm, drafters_here, own_arms
from mlxspec.bench.run import Setup, setup_lines, setup_of
from mlxspec.bench.verify import Plan, Progress, contexts_of
from mlxspec.budget import FixedBudget
from mlxspec.drafting.registry import DrafterContext
from mlxspec.errors import Say
from mlxspec.loading import LoadedModel
from mlxspec.loading.exactness import exact_form
from mlxspec.measure.tables import table
from mlxspec.measure.trial import prompt_tokens
from mlxspec.params import GenerationParams, SamplingParams

TEMPERATURES = (0.0, 0.7, 1.0)


@dataclass(frozen=True)
class ExactRow:
    """The comparison of one drafter's replies with plain decoding, over one kind of cache."""

    cache: str
    drafter: str
    num_replies: int
    num_different: int  # in any bit of a logit, or in a token
    usually_different: int  # the same without exact decoding
    tokens: int
    drafted: int  # draft nodes
    accepted: int

    @property
    def words(self) -> str:
        return f"cache {self.cache}, {self.drafter}: {_differing([self])}"


@dataclass(frozen=True)
class ExactResult:
    """The results of a check; `forms` has the forwards that were found for each cache."""

    DERIVED: ClassVar = ("is_lossless", "verdict_text")

    setup: Setup
    forms: dict[str, str]
    rows: tuple[ExactRow, ...]
    notes: tuple[str, ...]

    @property
    def is_lossless(self) -> bool:
        return not any(row.num_different for row in self.rows)

    @property
    def verdict_text(self) -> str:
        return f"{'exact' if self.is_lossless else 'NOT exact'}: {_differing(self.rows)}"


def _differing(rows: Sequence[ExactRow]) -> str:
    total = sum(row.num_replies for row in rows)
    wrong = sum(row.num_different for row in rows)
    usual = sum(row.usually_different for row in rows)
    return f"{wrong} of {total} replies differ by a bit; without the mode {usual} do"


def check_exact(loaded: LoadedModel, plan: Plan, say: Say, progress: Progress) -> ExactResult:
    """Check a model with all caches and drafters of a plan, which draws no samples."""
    notes: list[str] = []
    contexts = contexts_of(loaded, plan.caches, say, notes)
    forms, rows = dict[str, str](), list[ExactRow]()
    setup = setup_of(contexts[0], plan.params(max(plan.num_nodes)), PLAIN)
    try:
        for context in contexts:
            cache = context.target.cache.describe()
            forms[cache] = exact_form(context.target, say).words
            for row in _compared(context, cache, plan, progress):
                rows.append(row)
                say(row.words)
    except KeyboardInterrupt:
        so_far = ExactResult(setup, forms, tuple(rows), tuple(notes)).verdict_text
        say(f"stopped; so far {so_far}" if rows else "stopped before a drafter was compared")
        raise
    return ExactResult(setup, forms, tuple(rows), tuple(notes))


def text(result: ExactResult) -> str:
    """Return the report: the setup, the forms, the counts and the verdict."""
    forms = [f"cache {cache}: {words}" for cache, words in result.forms.items()]
    rows = [["cache", "drafter", "replies", "differ", "without", "tokens", "drafted", "accepted"]]
    for row in result.rows:
        counts = (row.num_replies, row.num_different, row.usually_different, row.tokens)
        drafts = row.drafted, row.accepted
        rows.append([row.cache, row.drafter, *map(str, (*counts, *drafts))])
    notes = [f"! {note}" for note in result.notes]
    parts = ["\n".join([*setup_lines(result.setup), *forms]), table(rows), *notes]
    return "\n\n".join([*parts, result.verdict_text])


class _Reply:
    """A reply, and a digest of its tokens and of the logits from which they were drawn."""

    def __init__(self, arm: OwnArm, prompt: Sequence[int], params: GenerationParams) -> None:
        self._digest = sha256()
        arm.begin()
        self.trial = arm.write(prompt, replace(params, on_logits=self._add))
        self.bits = self._digest.digest()

    def _add(self, tokens: Sequence[int], logits: Any) -> None:
        for token, row in zip(tokens, np.array(logits.astype(mx.float32)), strict=True):
            self._digest.update(f"{token} ".encode() + row.tobytes())


def _compared(
    context: DrafterContext, cache: str, plan: Plan, progress: Progress
) -> Iterator[ExactRow]:
    words = list(plan.drafters) or drafters_here(context)
    plain, *arms = own_arms([PLAIN, *words], context, FixedBudget())
    cases = [
        (prompt_tokens(context.engine, question.turns[0]), _params(plan, index, temperature))
        for index, question in enumerate(plan.questions)
        for temperature in TEMPERATURES
    ]
    wanted: dict[bool, list[bytes]] = {
        is_exact: [
            _Reply(plain, prompt, replace(params, exact=is_exact)).bits
            for prompt, params in progress(cases, f"{cache}: {PLAIN}{', exact' * is_exact}")
        ]
        for is_exact in (True, False)
    }
    for arm in arms:
        doing = progress(cases, f"{cache}: {arm.name}")
        found = [
            [_Reply(arm, prompt, replace(params, exact=is_exact)) for is_exact in (True, False)]
            for prompt, params in doing
        ]
        exact, usual = zip(*found, strict=True)
        yield ExactRow(
            cache=cache,
            drafter=arm.name,
            num_replies=len(cases),
            num_different=_different(exact, wanted[True]),
            usually_different=_different(usual, wanted[False]),
            tokens=sum(len(reply.trial.tokens) for reply in exact),
            drafted=sum(reply.trial.stats["drafted"] for reply in exact),
            accepted=sum(reply.trial.stats["accepted"] for reply in exact),
        )


def _params(plan: Plan, index: int, temperature: float) -> GenerationParams:
    usual = plan.params(plan.num_nodes[index % len(plan.num_nodes)])
    return replace(usual, sampling=SamplingParams(temperature=temperature), seed=index)


def _different(replies: Sequence[_Reply], wanted: Sequence[bytes]) -> int:
    return sum(reply.bits != bits for reply, bits in zip(replies, wanted, strict=True))
