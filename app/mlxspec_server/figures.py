"""Figures of replies in the format of each API, and metrics of the server for Prometheus."""

from collections import Counter
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

Stats = Mapping[str, Any]


def usage_of(stats: Sequence[Stats], num_prompts: int, *, has_prediction: bool) -> dict[str, Any]:
    """Return the `usage` of OpenAI's API for all replies to a request, in order.

    Predicted tokens appear only if the client sent a prediction. Our own drafts are not the
    client's predictions; `timings` reports them.
    """
    firsts = stats[:: len(stats) // num_prompts]  # each prompt counts once
    prompt = sum(one["prompt_tokens"] for one in firsts)
    written = sum(one["generated_tokens"] for one in stats)
    details = {"reasoning_tokens": sum(one["reasoning_tokens"] for one in stats)}
    if has_prediction:
        for name in ("accepted_prediction_tokens", "rejected_prediction_tokens"):
            details[name] = sum(one[name] for one in stats)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": sum(one["reused_tokens"] for one in firsts)},
        "completion_tokens_details": details,
    }


def timings_of(stats: Stats, drafter: str) -> dict[str, Any]:
    """Return the figures of a reply under llama.cpp's names, with acceptance of drafts."""
    read = stats["prompt_tokens"] - stats["reused_tokens"]
    prompt_ms = stats["prefill_s"] * 1e3
    predicted_ms = max(stats["total_s"] - stats["prefill_s"], 0.0) * 1e3
    return {
        "cache_n": stats["reused_tokens"],
        "prompt_n": read,
        "prompt_ms": round(prompt_ms, 3),
        "prompt_per_second": _per_second(read, prompt_ms),
        "predicted_n": stats["generated_tokens"],
        "predicted_ms": round(predicted_ms, 3),
        "predicted_per_second": _per_second(stats["generated_tokens"], predicted_ms),
        "draft_n": stats["drafted"],
        "draft_n_accepted": stats["accepted"],
        "draft_rounds": stats["rounds"],
        "draft_kind": drafter,
    }


def _per_second(count: int, ms: float) -> float:
    return round(count * 1e3 / ms, 3) if ms else 0.0


class Counts:
    """Counts since the server started, from the figures of its replies."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: Counter[str] = Counter()

    def add(self, name: str, number: float = 1) -> None:
        with self._lock:
            self._counts[name] += number  # type: ignore[assignment]  # seconds are no whole number

    def add_reply(self, stats: Stats) -> None:
        self.add("replies")
        for name, field in (
            ("prompt_tokens", "prompt_tokens"),
            ("cached_tokens", "reused_tokens"),
            ("generated_tokens", "generated_tokens"),
            ("draft_tokens", "drafted"),
            ("accepted_draft_tokens", "accepted"),
            ("drafted_rounds", "rounds"),
            ("plain_rounds", "plain_forwards"),
        ):
            self.add(name, stats[field])

    def as_text(self, gauges: Mapping[str, float]) -> str:
        """Return the metrics in Prometheus' text format."""
        with self._lock:
            counts = dict(self._counts)
        names = ["requests", "refused", "replies", "prompt_tokens", "cached_tokens"]
        names += ["generated_tokens", "draft_tokens", "accepted_draft_tokens"]
        lines = []
        for name in (*names, "drafted_rounds", "plain_rounds"):
            whole = f"mlxspec_{name}_total"
            lines += [f"# TYPE {whole} counter", f"{whole} {counts.get(name, 0)}"]
        for name, value in gauges.items():
            lines += [f"# TYPE mlxspec_{name} gauge", f"mlxspec_{name} {value}"]
        return "\n".join(lines) + "\n"
