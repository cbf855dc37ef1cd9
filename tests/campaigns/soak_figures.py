"""The figures of a soak: what one process uses now, and whether that grew over many turns.

Growth is judged on probes alone: turns that all ask the same of the same model in an empty chat,
so that nothing but the age of the process tells them apart. All other turns are shown beside them.
"""

import gc
import json
import os
import statistics
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import mlx.core as mx

_Cached = type(lru_cache(maxsize=1)(int))
PROBE = "probe"


@dataclass(frozen=True)
class Bound:
    """How much a figure may grow: a share of its first part, and more in its own unit."""

    name: str
    share: float
    more: float

    def allows(self, first, last):
        return last - first <= self.share * first + self.more


BOUNDS = (
    Bound("rss_mb", 0.05, 20.0),
    Bound("mlx_active_mb", 0.01, 1.0),
    Bound("mlx_cache_mb", 0.10, 32.0),
    Bound("threads", 0.0, 0.0),
    Bound("files", 0.0, 0.0),
    Bound("objects", 0.10, 5_000),
    Bound("cpu_ms_per_token", 0.15, 2.0),
    Bound("first_cpu_ms", 0.15, 20.0),
)
"""Time is judged as that of the processor: others share the machine, and may stop this process."""
SHOWN = ("mlx_peak_mb", "ms_per_token", "first_ms", "garbage")


def give_up_cached():
    """Empty the caches that have a size: those of Textual and Rich fill for hours, and then stay.

    Their entries hold dead widgets and drawn lines, so they would hide what grows without end.
    """
    for cache in gc.get_objects():
        if isinstance(cache, _Cached) and cache.cache_parameters()["maxsize"] is not None:
            cache.cache_clear()


def in_use():
    """Return what this process uses once garbage is collected: how much waits is no growth."""
    gc.collect()
    return {
        "rss_mb": _resident() / 1e6,
        "mlx_active_mb": mx.get_active_memory() / 1e6,
        "mlx_cache_mb": mx.get_cache_memory() / 1e6,
        "mlx_peak_mb": mx.get_peak_memory() / 1e6,
        "threads": threading.active_count(),
        "files": len(os.listdir("/dev/fd")),
        "objects": len(gc.get_objects()),
        "garbage": len(gc.garbage),
    }


def read_lines(path):
    """Return the turns of a file; a last line that was cut off is passed over."""
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


@dataclass(frozen=True)
class Growth:
    """One figure over a soak: its medians and its slope, in its own unit per hour."""

    name: str
    first: float
    last: float
    per_hour: float
    bound: Bound | None

    @property
    def is_allowed(self):
        return self.bound is None or self.bound.allows(self.first, self.last)

    @property
    def row(self):
        verdict = "" if self.bound is None else "ok" if self.is_allowed else "GROWS"
        figures = f"{self.first:12.2f}{self.last:12.2f}{self.per_hour:+12.2f}"
        return f"  {self.name:18}{figures}  {verdict}"


def growth(samples, name, bound=None, parts=4):
    """Return how a figure grew from the first of some equal parts of the samples to the last."""
    points = [(sample["hours"], sample[name]) for sample in samples if sample.get(name) is not None]
    length = max(1, len(points) // parts)
    values = [value for _, value in points]
    first, last = statistics.median(values[:length]), statistics.median(values[-length:])
    return Growth(name, first, last, theil_sen(points), bound)


def theil_sen(points):
    """Return the median slope over all pairs of points: a few wild ones do not turn it."""
    slopes = [(b - y) / (a - x) for (x, y), (a, b) in combinations(points, 2) if a != x]
    return statistics.median(slopes) if slopes else 0.0


def summary(lines):
    """Return the figures of a soak as text, and whether nothing grew beyond its bound."""
    counts = Counter(line["action"] for line in lines)
    hours = lines[-1]["hours"] - lines[0]["hours"] if lines else 0.0
    tokens = sum(line["tokens"] for line in lines)
    text = [
        f"{len(lines)} turns, {tokens} tokens, {60 * hours:.1f} minutes: "
        + ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    ]
    probes = [line for line in lines if line["action"] == PROBE]
    if len(probes) < 4:
        return "\n".join([*text, "too few probes for a verdict: soak for longer"]), False
    rows = [growth(probes, bound.name, bound) for bound in BOUNDS]
    rows += [growth(probes, name) for name in SHOWN]
    text.append(f"  {'of probes':18}{'first 1/4':>12}{'last 1/4':>12}{'per hour':>12}")
    text += [row.row for row in rows]
    grown = [row.name for row in rows if not row.is_allowed]
    text.append(f"verdict: {', '.join(grown)} grew beyond bounds" if grown else "verdict: steady")
    return "\n".join(text), not grown


def _resident():
    if sys.platform == "linux":
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # the most there was: macOS has no
    # cheap way to ask for what there is
