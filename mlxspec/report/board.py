"""The table of shared figures: `python -m mlxspec.report.board FOLDER OUT`.

FOLDER has a file of `mlxspec bench --share` for each row, in the order of their names.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from mlxspec.report.shared import SharedArm, SharedFigures, SharedFileError, read_shared

_HEAD = """# Figures of machines

Each row was measured on one machine, in one process: all arms answered the same prompts over the
same weights, in rotating order. A ratio compares two arms of that run. **Tokens/s of two machines
are figures of two runs**: they say what to expect, not which program is better.

Add yours: `mlxspec bench --arms plain,pool --share FILE` writes one small file with figures, and
without names, paths or text. Put it into `docs/board/` and write this page again:

```sh
python -m mlxspec.report.board docs/board docs/board.md
```

"""
_COLUMNS = (
    "machine",
    "model",
    "arm",
    "T",
    "tokens/s",
    "over the baseline",
    "tokens/forward",
    "identical replies",
    "T(4)/T(1)",
    "day",
)
_FORWARD_ROWS = 4  # of the column of the cost curve
_MARKUP = str.maketrans({char: f"\\{char}" for char in "\\`*_{}[]<>|#!~&"})


def page(rows: Iterable[SharedFigures]) -> str:
    """Return the page with the rows, as Markdown."""
    lines = [_line(_COLUMNS), _line(["---"] * len(_COLUMNS))]
    for figures in rows:
        lines += [_line(_cells(figures, arm)) for arm in figures.arms]
    return _HEAD + "\n".join(lines) + "\n"


def _cells(figures: SharedFigures, arm: SharedArm) -> Sequence[str]:
    agreement = "" if arm.identical is None else f"{arm.identical} of {arm.replies}"
    if arm.near_ties:
        agreement += f", {arm.near_ties} part at a near-tie"
    one, several = figures.curve.get(1), figures.curve.get(_FORWARD_ROWS)
    mlx = figures.versions.get("mlx", "?")
    return (
        _plain(
            ", ".join(filter(None, (figures.device, figures.system, figures.blas, f"mlx {mlx}")))
        ),
        _plain(f"{figures.model}, {figures.weights}"),
        _plain(arm.arm),
        f"{arm.temp:g}",
        _number(arm.tokens_per_s, 1),
        _number(arm.ratio, 2),
        _number(arm.tokens_per_forward, 2),
        agreement,
        _number(several / one if one and several else None, 2),
        figures.day,
    )


def _plain(text: str) -> str:
    """Return text of somebody else's file, so that Markdown shows it and does not obey it."""
    return text.translate(_MARKUP)


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str]) -> int:
    """Write the page; return 0, or 2 if a file is no file of shared figures."""
    folder, out = map(Path, arguments)
    try:
        rows = [read_shared(path) for path in sorted(folder.glob("*.json"))]
    except SharedFileError as error:
        print(error, file=sys.stderr)
        return 2
    out.write_text(page(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
