"""The questions, in Spec-Bench's format (Xia et al. 2024, https://arxiv.org/abs/2401.07851).

A line is a JSON object with `question_id`, `category` and `turns`, the texts of the user in order.
The category `copy` favours any drafter that copies, so it is never part of a mean.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from os import PathLike
from pathlib import Path

from mlxspec.files import NotTextError, read_text
from mlxspec.params import Grammar
from mlxspec.text.prompt import are_texts

APART = "copy"
_OWN = Path(__file__).with_name("prompts.jsonl")
_SCHEMAS = Path(__file__).with_name("schemas.jsonl")
_MULTI_TURN = "multi-turn"
_OF_MT_BENCH = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem")
_GROUPS = dict.fromkeys((*_OF_MT_BENCH, "humanities"), _MULTI_TURN)


@dataclass(frozen=True)
class Question:
    """The user's side of a conversation."""

    id: str
    category: str  # "multi-turn" for all of MT-Bench's
    turns: tuple[str, ...]
    grammar: Grammar | None = None  # which replies must fit

    @property
    def digest(self) -> str:
        """A short hash of the turns and the grammar."""
        text = json.dumps(self.turns) + (self.grammar.source if self.grammar else "")
        return sha256(text.encode()).hexdigest()[:12]


def read_questions(path: str | PathLike[str] | None = None) -> list[Question]:
    """Return the questions of a file, or the built-in ones; `ValueError` if it is damaged."""
    source = _OWN if path is None else Path(path)
    try:
        lines = read_text(source).split("\n")
    except OSError as error:
        raise ValueError(f"cannot read the questions {source}: {error.strerror}") from error
    except NotTextError as error:
        raise ValueError(f"the file of questions {source} is {error}") from error
    stated = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    questions = [_question(line, f"{source}, line {number}") for number, line in stated]
    if not questions:
        raise ValueError(f"{source} holds no questions: write one JSON object per line")
    return questions


def read_schemas() -> list[Question]:
    """Return the built-in questions whose answers must fit a schema."""
    rows = map(json.loads, _SCHEMAS.read_text(encoding="utf-8").splitlines())
    return [
        Question(
            str(row["id"]), row["category"], (row["prompt"],), Grammar.json_schema(row["schema"])
        )
        for row in rows
    ]


def choose_questions(
    questions: Sequence[Question], categories: Sequence[str] = (), limit: int | None = None
) -> list[Question]:
    """Return at most `limit` questions of each of `categories`, or of every category."""
    if limit is not None and limit < 1:
        raise ValueError(f"the limit is a number of questions, 1 or more; got {limit}")
    there = list(dict.fromkeys(question.category for question in questions))
    for category in categories:
        if category not in there:
            raise ValueError(f"category {category!r} is not there; choose from {', '.join(there)}")
    chosen = [name for name in there if not categories or name in categories]
    members = ([one for one in questions if one.category == name][:limit] for name in chosen)
    return [question for few in members for question in few]


def _question(line: str, place: str) -> Question:
    try:
        stated = json.loads(line)
        name, turns = str(stated["category"]), stated["turns"]
        number = str(stated["question_id"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{place} is not a question: it needs question_id, category and turns"
        ) from error
    if not are_texts(turns):
        raise ValueError(f"{place}: turns must be texts, one or more")
    return Question(number, _GROUPS.get(name, name), tuple(turns))
