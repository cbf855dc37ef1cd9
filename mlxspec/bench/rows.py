"""Stores rows in a file, one line each, so that a long run can be interrupted and continued."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mlxspec.bench.run import Case, Plan, Row
from mlxspec.bench.setup import Setup
from mlxspec.measure.trial import Trial
from mlxspec.trace.difference import Difference


def append_rows(path: Path, rows: Iterable[Row], setup: Setup) -> None:
    """Append rows to a file, or raise `ValueError`."""
    lines = [json.dumps(row_dict(row) | {"setup": dict(setup)}) + "\n" for row in rows]
    try:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(lines)
    except OSError as error:
        raise ValueError(f"cannot write the rows to {path}: {error.strerror}") from error


def read_rows(path: Path, plan: Plan, setup: Setup) -> list[Row]:
    """Return the rows of a file that belong to a plan and were measured in the same setup.

    Lines that an interruption cut off are ignored. Raises `ValueError` if the file cannot be read.
    """
    if not path.exists():
        return []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the rows in {path}: {error}") from error
    cases = {_key(case): case for case in plan.cases}
    rows: dict[tuple[Any, ...], Row] = {}
    for stated in map(_json, lines):
        case = cases.get(
            tuple(stated.get(name) for name in ("question_id", "digest", "temp", "repeat"))
        )
        is_of_run = stated.get("setup") == json.loads(json.dumps(dict(setup)))
        if case is not None and is_of_run and _is_judged(stated):
            rows[case, stated["arm"]] = _row(stated, case)
    return list(rows.values())


def row_dict(row: Row) -> dict[str, Any]:
    """Return a row ready for JSON."""
    question = row.case.question
    return {
        "question_id": question.id,
        "category": question.category,
        "digest": question.digest,
        "temp": row.case.temp,
        "repeat": row.case.repeat,
        "arm": row.arm,
        "replies": [asdict(reply) for reply in row.replies],
        "differences": [found and asdict(found) for found in row.differences],
    }


def _key(case: Case) -> tuple[Any, ...]:
    return case.question.id, case.question.digest, case.temp, case.repeat


def _is_judged(stated: Mapping[str, Any]) -> bool:
    """Return whether differences have a near-tie; an earlier version did not measure it."""
    return all(item is None or "near_tie" in item for item in stated["differences"])


def _row(stated: Mapping[str, Any], case: Case) -> Row:
    replies = [Trial(**{**reply, "tokens": tuple(reply["tokens"])}) for reply in stated["replies"]]
    found: Sequence[Any] = stated["differences"]
    differences = tuple(None if item is None else Difference(**item) for item in found)
    return Row(case, str(stated["arm"]), tuple(replies), differences)


def _json(line: str) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
