"""Measures replies that must fit a JSON schema, against plain decoding under the same schema.

The built-in set has 24 schemas in four categories, from a flat object to nested arrays. Plain
decoding computes a mask and one forward for every token, forced ones included. Each arm writes all
replies, in rotating order. A reply that ends by itself must be valid JSON.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from mlxspec.bench.sample import Arm, Reply, Task
from mlxspec.engine.engine import Engine
from mlxspec.params import Grammar

_OWN = Path(__file__).with_name("schemas.jsonl")

STRUCTURED_HEADER = (
    f"{'arm':<14}{'schemas':<12}{'over plain':>11}{'tokens/s':>10}{'tokens/forward':>16}"
    f"{'forced':>8}{'accepted':>10}{'whole':>8}"
)


@dataclass(frozen=True)
class SchemaQuestion:
    """A question whose answer must fit a schema.

    `category` is "flat", "list", "nested" or "deep".
    """

    category: str
    prompt: str
    schema: Mapping[str, Any]


@dataclass(frozen=True)
class StructuredFigures:
    """The figures of an arm in one category, or in "all".

    Attributes:
        ratio: Tokens/s over those of plain decoding: the mean over the questions of each one's
            median over the repeats.
        tokens_per_s: Tokens of all replies over their seconds.
        forced: Share of the tokens that were forced.
        acceptance: Accepted nodes over drafted depths, without forced tokens.
        whole: Share of the replies that ended by themselves.
    """

    arm: str
    category: str
    ratio: float
    tokens_per_s: float
    tokens_per_forward: float
    forced: float
    acceptance: float
    whole: float

    @property
    def line(self) -> str:
        """A line of the table below `STRUCTURED_HEADER`."""
        return (
            f"{self.arm:<14}{self.category:<12}{self.ratio:>11.2f}{self.tokens_per_s:>10.1f}"
            f"{self.tokens_per_forward:>16.2f}{self.forced:>8.0%}{self.acceptance:>10.0%}"
            f"{self.whole:>8.0%}"
        )


def choose_schemas(
    categories: Sequence[str] = (), limit: int | None = None
) -> list[SchemaQuestion]:
    """Return the built-in questions of some categories (all if empty), at most `limit` of each.

    Raises `ValueError` if there is no such category.
    """
    rows = map(json.loads, _OWN.read_text(encoding="utf-8").splitlines())
    own = [SchemaQuestion(row["category"], row["prompt"], row["schema"]) for row in rows]
    names = list(dict.fromkeys(question.category for question in own))
    unknown = set(categories) - set(names)
    if unknown:
        raise ValueError(f"no category {min(unknown)!r}; choose from {', '.join(names)}")
    chosen = [[q for q in own if q.category == name] for name in categories or names]
    return [question for some in chosen for question in some[:limit]]


def measure_structured(
    engine: Engine,
    arms: Sequence[Arm],
    task: Task,
    repeats: int,
    questions: Sequence[SchemaQuestion],
) -> list[StructuredFigures]:
    """Return the figures of every arm and of plain decoding, by category and in all.

    The arms are those of mlxspec. Each repeat has the next seed. Raises `ValueError` if a reply
    that ended by itself is not JSON.
    """
    found: list[_Pair] = []
    for repeat in range(repeats):
        own = replace(task, seed=task.seed + repeat)
        for index, question in enumerate(questions):
            found += _ask(engine, arms, own, index, question)
    return list(_figures(found, questions))


@dataclass(frozen=True)
class _Pair:
    """A reply of an arm, and the plain one to the same question."""

    arm: str
    question: int
    reply: Reply
    plain: Reply
    is_whole: bool

    @property
    def ratio(self) -> float:
        return _speed(self.reply) / _speed(self.plain)


def _ask(
    engine: Engine, arms: Sequence[Arm], task: Task, index: int, question: SchemaQuestion
) -> Iterator[_Pair]:
    prompt = engine.tokenizer.apply_chat_template([{"role": "user", "content": question.prompt}])
    constrained = replace(task, grammar=Grammar.json_schema(question.schema))
    turn = index % (len(arms) + 1)
    order: list[Arm | None] = [None, *arms]
    replies: dict[str, Reply] = {}
    whole: set[str] = set()
    for arm in (*order[turn:], *order[:turn]):
        own = constrained if arm else replace(constrained, num_draft_tokens=0)
        writer = arm or arms[0]
        writer.begin()
        reply = writer.write(prompt, own)
        replies[arm.name if arm else "plain"] = reply
        if len(reply.tokens) < task.max_tokens:
            json.loads(engine.tokenizer.decode(reply.tokens))
            whole.add(arm.name if arm else "plain")
    for name, reply in replies.items():
        yield _Pair(name, index, reply, replies["plain"], name in whole)


def _figures(
    pairs: Sequence[_Pair], questions: Sequence[SchemaQuestion]
) -> Iterator[StructuredFigures]:
    categories = list(dict.fromkeys(question.category for question in questions))
    for arm in dict.fromkeys(pair.arm for pair in pairs):
        for category in (*categories, "all"):
            some = [
                pair
                for pair in pairs
                if pair.arm == arm and category in (questions[pair.question].category, "all")
            ]
            if some:
                yield _figures_of(arm, category, some)


def _figures_of(arm: str, category: str, pairs: Sequence[_Pair]) -> StructuredFigures:
    by_question: dict[int, list[float]] = {}
    for pair in pairs:
        by_question.setdefault(pair.question, []).append(pair.ratio)
    stats = [pair.reply.stats for pair in pairs]
    num_tokens = sum(len(pair.reply.tokens) for pair in pairs)
    depths = sum(sum(one["drafted_at_depth"]) for one in stats)
    return StructuredFigures(
        arm,
        category,
        ratio=fmean(median(ratios) for ratios in by_question.values()),
        tokens_per_s=num_tokens / sum(one["total_s"] - one["prefill_s"] for one in stats),
        tokens_per_forward=num_tokens / sum(pair.reply.forwards for pair in pairs),
        forced=sum(one["kinds"].get("forced", 0) for one in stats) / num_tokens,
        acceptance=sum(one["accepted"] for one in stats) / depths if depths else 0.0,
        whole=sum(pair.is_whole for pair in pairs) / len(pairs),
    )


def _speed(reply: Reply) -> float:
    return float(reply.stats["generation_tps"])
