"""The arithmetic of the campaign: percentiles, and whether a process grew."""

import statistics
from collections.abc import Mapping, Sequence

from tests.campaigns.soak_figures import Bound, Growth, theil_sen

BOUNDS = (
    Bound("rss_mb", 0.05, 20.0),
    Bound("threads", 0.0, 2.0),
    Bound("files", 0.10, 4.0),
)
"""Connections come and go, and Python begins threads when they are needed first."""
WARM_UP = 0.2  # share of the samples that is not judged: caches fill


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile, on the line between the two values beside it."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def growths(
    samples: Sequence[Mapping[str, float]], bounds: Sequence[Bound] = BOUNDS
) -> list[Growth]:
    """Return how much each figure grew from the first third after the warm-up to the last one.

    Args:
        samples: Taken one after the other, each with its `hours`.
        bounds: The figures, and how much they may grow.

    Returns:
        Medians of both thirds; empty for fewer than six samples.
    """
    judged = samples[round(len(samples) * WARM_UP) :]
    third = len(judged) // 3
    if third < 2:
        return []
    found = []
    for bound in bounds:
        first, last = (
            statistics.median(sample[bound.name] for sample in part)
            for part in (judged[:third], judged[-third:])
        )
        slope = theil_sen([(sample["hours"], sample[bound.name]) for sample in judged])
        found.append(Growth(bound.name, first, last, slope, bound))
    return found


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows as a Markdown table, its columns those of the first row."""
    names = list(rows[0])
    cells = [
        [f"{row[name]:.2f}" if isinstance(row[name], float) else str(row[name]) for name in names]
        for row in rows
    ]
    lines = [names, ["---"] * len(names), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
