"""The run: every arm replies to every question, turn by turn, the arms in rotating order.

The prompt of the next turn holds the baseline's reply, so all arms read the same text.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from typing import Any

from mlxspec import __version__
from mlxspec.bench.arms import Arm
from mlxspec.bench.prompts import Question
from mlxspec.device import backend
from mlxspec.drafting.registry import DrafterContext
from mlxspec.engine.engine import Engine
from mlxspec.errors import ContextLengthError
from mlxspec.measure.lossless import first_difference
from mlxspec.measure.trial import Trial, prompt_tokens, rotated
from mlxspec.params import GenerationParams, Options, SamplingParams
from mlxspec.trace.difference import Difference

_WARM_UP = "Name three colours, and say them again: "


@dataclass(frozen=True)
class Plan:
    """The questions and settings of a run; each repeat adds 1 to the seed of `params`."""

    questions: Sequence[Question]
    temps: Sequence[float]
    repeats: int
    params: GenerationParams

    @property
    def cases(self) -> list["Case"]:
        numbers = product(range(self.repeats), self.questions, self.temps)
        return [Case(question, temp, repeat) for repeat, question, temp in numbers]


@dataclass(frozen=True)
class Case:
    """One conversation, the same for every arm; `repeat` counts from 0."""

    question: Question
    temp: float
    repeat: int

    def params(self, params: GenerationParams) -> GenerationParams:
        return replace(
            params,
            sampling=replace(params.sampling, temperature=self.temp),
            seed=params.seed + self.repeat,
            grammar=self.question.grammar,
        )


@dataclass(frozen=True)
class Row:
    """One conversation of one arm: its replies, turn by turn, and how they leave the baseline's."""

    case: Case
    arm: str
    replies: tuple[Trial, ...]
    differences: tuple[Difference | None, ...] = ()  # of greedy replies alone


class Runner:
    """Runs the conversations with all arms, the baseline included."""

    def __init__(self, engine: Engine, arms: Sequence[Arm], baseline: str) -> None:
        """The engine computes the target's logits where two replies differ."""
        self.engine, self.arms, self.baseline = engine, list(arms), baseline

    def warm_up(self, params: GenerationParams, tell: Callable[[str], None]) -> None:
        prompt = prompt_tokens(self.engine, _WARM_UP)
        for arm in self.arms:
            tell(arm.name)
            arm.begin()
            arm.write(prompt, replace(params, max_tokens=min(params.max_tokens, 8)))

    def rows(
        self,
        case: Case,
        number: int,
        params: GenerationParams,
        known: Sequence[Row] = (),
        tell: Callable[[str], None] = lambda name: None,
    ) -> list[Row]:
        """Return the rows of a conversation, for all arms that are not in `known`.

        The number of the conversation decides which arm writes first; `tell` hears of each before.
        """
        replies = {row.arm: list(row.replies) for row in known}
        waiting = [arm for arm in rotated(self.arms, number) if arm.name not in replies]
        replies |= {arm.name: [] for arm in waiting}
        differences: dict[str, list[Difference | None]] = {arm.name: [] for arm in waiting}
        params, texts = case.params(params), []
        for arm in waiting:
            arm.begin()
        for turn, question in enumerate(case.question.turns):
            texts.append(question)
            prompt = prompt_tokens(self.engine, *texts)
            self._check_room(len(prompt), params.max_tokens)
            for arm in waiting:
                tell(arm.name)
                replies[arm.name].append(arm.write(prompt, params))
            standard = replies[self.baseline][turn]
            texts.append(self.engine.tokenizer.decode(standard.tokens))
            for arm in waiting if case.temp == 0 else ():
                reply = replies[arm.name][turn]
                is_foreign = not (reply.stats and standard.stats)  # which other projects lack
                found = first_difference(
                    self.engine, prompt, reply.tokens, standard.tokens, is_foreign=is_foreign
                )
                differences[arm.name].append(found)
        return [
            Row(case, arm.name, tuple(replies[arm.name]), tuple(differences[arm.name]))
            for arm in waiting
        ]

    def _check_room(self, num_prompt: int, max_tokens: int) -> None:
        room = self.engine.context_length
        if room is not None and num_prompt + max_tokens > room:
            raise ContextLengthError(
                f"a prompt of {num_prompt} tokens and a reply of {max_tokens} exceed the context "
                f"length of {self.engine.name or 'the model'}, {room} tokens: give a smaller "
                "--max-tokens or shorter prompts",
                room,
            )


# ---- the setup of a run, on which all figures depend ---------------------------------------------

Setup = Mapping[str, Any]
"""Values by name, ready for JSON; only figures of equal setups are comparable."""

_DRAFTING = ("branching", "depth", "exit_threshold", "chain_rule")
_FILTERS = ("top_p", "min_p")
_OTHERS = ("mlx-lm", "mlx-dspark")


def setup_of(context: DrafterContext, params: GenerationParams, baseline: str) -> Setup:
    """Return the setup of a run, with those settings of drafts and filters that are not usual."""
    facts, options = backend.facts(), context.options
    versions = {"mlxspec": __version__, "mlx": facts.mlx, "python": facts.python}
    given = {name: getattr(options, name) for name in _DRAFTING}
    given |= {name: getattr(params.sampling, name) for name in _FILTERS}
    usual = vars(Options()) | vars(SamplingParams())
    return {
        "model": context.loaded.name,
        "weights": context.loaded.weights,
        "device": f"{facts.device}, {facts.cores} cores, {facts.memory_gb:.0f} GB",
        "system": facts.system,
        "blas": facts.blas,
        "versions": versions | {name: found for name in _OTHERS if (found := version_of(name))},
        "max_tokens": params.max_tokens,
        "num_draft_tokens": params.num_draft_tokens,
        "lookahead": options.lookahead,
        **{name: value for name, value in given.items() if value != usual[name]},
        "seed": params.seed,
        "baseline": baseline,
    }


def setup_lines(setup: Setup) -> list[str]:
    """Return a setup as lines of a name and a value."""
    versions = ", ".join(f"{name} {number}" for name, number in setup["versions"].items())
    chosen = (name for name in (*_DRAFTING, *_FILTERS) if name in setup)
    settings = (
        f"{setup['max_tokens']} tokens at most",
        f"{setup['num_draft_tokens']} draft nodes a round",
        f"draft models {setup['lookahead']}",
        *(f"{name.replace('_', ' ')} {setup[name]}" for name in chosen),
    )
    rows = {name: setup[name] for name in ("model", "weights", "device", "system", "blas")}
    rows |= {"versions": versions, "settings": ", ".join(settings)}
    return [f"{name:<10}{value}" for name, value in rows.items() if value]


def version_of(package: str) -> str:
    """Return the version of a package; "" if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


# ---- the file of a long run, which can be interrupted and continued ----------------------------

_KEY = ("question_id", "digest", "temp", "repeat")


def append_rows(path: Path, rows: Iterable[Row], setup: Setup) -> None:
    """Append rows to a file."""
    with path.open("a", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row_dict(row) | {"setup": dict(setup)}) + "\n")


def read_rows(path: Path, plan: Plan, setup: Setup) -> list[Row]:
    """Return the rows of a file that belong to a plan and were measured in the same setup."""
    if not path.exists():
        return []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the rows in {path}: {error}") from error
    here = json.loads(json.dumps(dict(setup)))
    cases = {tuple(_key(case).values()): case for case in plan.cases}
    rows: dict[tuple[Any, ...], Row] = {}
    for line in lines:
        try:
            stated = dict(json.loads(line))
        except (ValueError, TypeError):
            continue  # an interruption cut it off
        case = cases.get(tuple(stated.get(name) for name in _KEY))
        if case is not None and stated.get("setup") == here:
            replies = ({**one, "tokens": tuple(one["tokens"])} for one in stated["replies"])
            found = (one and Difference(**one) for one in stated["differences"])
            row = Row(case, stated["arm"], tuple(Trial(**one) for one in replies), tuple(found))
            rows[case, row.arm] = row
    return list(rows.values())


def row_dict(row: Row) -> dict[str, Any]:
    """Return a row ready for JSON."""
    return {
        **_key(row.case),
        "category": row.case.question.category,
        "arm": row.arm,
        "replies": [asdict(reply) for reply in row.replies],
        "differences": [found and asdict(found) for found in row.differences],
    }


def _key(case: Case) -> dict[str, Any]:
    values = case.question.id, case.question.digest, case.temp, case.repeat
    return dict(zip(_KEY, values, strict=True))
