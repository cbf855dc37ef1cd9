"""The file of `mlxspec bench --share`: the figures of one run, which anybody may read.

It holds figures of the machine and of the arms, no text of a prompt or a reply, no path and no
name. A file may come from anybody, so every value is checked when it is read.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from mlxspec.bench.figures import ArmFigures
from mlxspec.bench.report import BenchResult
from mlxspec.errors import MlxspecError
from mlxspec.report.json_file import is_number, read_json, short
from mlxspec.report.scrubbing import scrubbed

FORMAT = "mlxspec shared figures"
VERSION = 1
_MOST_BYTES = 64_000
_MOST_TEXT = 120
_MOST_ITEMS = 64
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


class SharedFileError(MlxspecError):
    """The error for a file that holds no shared figures, or damaged ones."""


@dataclass(frozen=True)
class SharedArm:
    """The figures of an arm at one temperature.

    Attributes:
        arm: Its name, as in `--arms`.
        temp: The temperature.
        ratio: Tokens/s over those of the baseline: the mean of the categories' medians, or None
            where nothing could be compared.
        tokens_per_s: Tokens/s after the first tokens, or None where there are none.
        tokens_per_forward: Tokens per forward of the target.
        acceptance_length: Accepted tokens of a round that drafted; None for an arm without rounds.
        replies: Replies that it wrote.
        identical: Greedy replies that are the baseline's, token by token; None for the baseline
            and above temperature 0.
        near_ties: Greedy replies that part from it where rounding decides; None likewise.
    """

    arm: str
    temp: float
    ratio: float | None
    tokens_per_s: float | None
    tokens_per_forward: float
    acceptance_length: float | None
    replies: int
    identical: int | None
    near_ties: int | None


@dataclass(frozen=True)
class SharedFigures:
    """What one machine shares of one run.

    Attributes:
        day: The day of the run, such as "2026-01-31".
        device: Name of the device, its cores and its memory.
        system: Operating system and architecture, without the version of a kernel.
        blas: The BLAS of the products on a CPU; "" on a GPU.
        versions: Versions by package.
        model: Name of the model.
        weights: Type of its weights.
        baseline: Name of the arm that the others are compared with.
        curve: Milliseconds of a forward by its number of rows, from 1 on.
        arms: The figures of each arm at each temperature.
    """

    day: str
    device: str
    system: str
    blas: str
    versions: Mapping[str, str]
    model: str
    weights: str
    baseline: str
    curve: Mapping[int, float]
    arms: Sequence[SharedArm]


def shared_figures(result: BenchResult) -> SharedFigures:
    """Return what may be shared of a run."""
    setup = scrubbed(dict(result.setup))
    system = setup["system"].split()
    return SharedFigures(
        day=date.today().isoformat(),
        device=setup["device"],
        system=" ".join(dict.fromkeys((system[0], system[-1]))),
        blas=setup["blas"],
        versions=setup["versions"],
        model=setup["model"],
        weights=setup["weights"],
        baseline=result.baseline,
        curve=dict(result.cost.ms) if result.cost else {},
        arms=[
            _arm(result, figures, temp) for temp in result.temps for figures in result.figures(temp)
        ],
    )


def _arm(result: BenchResult, figures: ArmFigures, temp: float) -> SharedArm:
    rows = [row for row in result.rows if (row.arm, row.case.temp) == (figures.arm, temp)]
    found = [difference for row in rows for difference in row.differences if difference]
    is_compared = temp == 0 and figures.arm != result.baseline
    return SharedArm(
        arm=figures.arm,
        temp=temp,
        ratio=figures.mean,
        tokens_per_s=figures.tokens_per_s,
        tokens_per_forward=figures.tokens_per_forward,
        acceptance_length=figures.rounds.get("mean_acceptance_length"),
        replies=figures.replies,
        identical=figures.replies - len(found) if is_compared else None,
        near_ties=sum(item.is_near_tie for item in found) if is_compared else None,
    )


def to_text(figures: SharedFigures) -> str:
    """Return the content of a file, in few digits."""
    curve = {"rows": list(figures.curve), "ms": list(figures.curve.values())}
    content = asdict(figures) | {"curve": curve}
    return json.dumps({"format": FORMAT, "version": VERSION, **short(content)}, indent=1) + "\n"


def read_shared(path: Path) -> SharedFigures:
    """Read a file.

    Raises:
        SharedFileError: The file cannot be read, holds no shared figures, or damaged ones.
    """
    try:
        content = read_json(path, _MOST_BYTES)
    except OSError as error:
        raise SharedFileError(f"{path} cannot be read: {error.strerror or error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise SharedFileError(
            f"{path} holds no figures of `mlxspec bench --share`: give the whole file, unchanged"
        )
    if content.get("version") != VERSION:
        raise SharedFileError(
            f"{path} has version {str(content.get('version'))[:20]!r}; this mlxspec reads version "
            f"{VERSION}: measure again with `mlxspec bench --share FILE`"
        )
    try:
        return _figures(content)
    except (KeyError, TypeError, ValueError) as error:
        raise SharedFileError(
            f"{path} is damaged: {str(error)[:80]} cannot be read. Measure again with "
            "`mlxspec bench --share FILE`"
        ) from error


def _figures(content: Mapping[str, Any]) -> SharedFigures:
    day = _text(content, "day")
    if not _DAY.fullmatch(day):
        raise ValueError("day")
    versions = content["versions"]
    names = ("device", "system", "blas", "model", "weights", "baseline")
    return SharedFigures(
        day=day,
        versions={_checked_text(name): _text(versions, name) for name in _items(versions)},
        curve=_curve(content["curve"]),
        arms=[_shared_arm(item) for item in _items(content["arms"])],
        **{name: _text(content, name) for name in names},
    )


def _shared_arm(content: Any) -> SharedArm:
    return SharedArm(
        arm=_text(content, "arm"),
        temp=_number(content, "temp"),
        ratio=_number_or_none(content, "ratio"),
        tokens_per_s=_number_or_none(content, "tokens_per_s"),
        tokens_per_forward=_number(content, "tokens_per_forward"),
        acceptance_length=_number_or_none(content, "acceptance_length"),
        replies=int(_number(content, "replies")),
        identical=_count_or_none(content, "identical"),
        near_ties=_count_or_none(content, "near_ties"),
    )


def _curve(content: Any) -> dict[int, float]:
    rows, ms = _items(content["rows"]), _items(content["ms"])
    is_sound = len(rows) == len(ms) and all(map(is_number, (*rows, *ms)))
    if not is_sound or sorted(set(rows)) != list(rows):
        raise ValueError("curve")
    return {int(row): float(took) for row, took in zip(rows, ms, strict=True)}


def _items(content: Any) -> Any:
    if not isinstance(content, list | dict) or len(content) > _MOST_ITEMS:
        raise ValueError("a list of values")
    return content


def _number(content: Any, name: str) -> float:
    if not is_number(content[name]):
        raise ValueError(name)
    return float(content[name])


def _number_or_none(content: Any, name: str) -> float | None:
    return None if content[name] is None else _number(content, name)


def _count_or_none(content: Any, name: str) -> int | None:
    return None if content[name] is None else int(_number(content, name))


def _text(content: Any, name: str) -> str:
    try:
        return _checked_text(content[name])
    except ValueError:
        raise ValueError(name) from None


def _checked_text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _MOST_TEXT or _CONTROL.search(value):
        raise ValueError("a text")
    return value
