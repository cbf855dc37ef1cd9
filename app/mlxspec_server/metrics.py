"""Counts since the server started, from the figures of its replies, in Prometheus' text format."""

from collections.abc import Mapping
from typing import Any

_FIELDS = {
    "prompt_tokens": "prompt_tokens",
    "cached_tokens": "reused_tokens",
    "generated_tokens": "generated_tokens",
    "draft_tokens": "drafted",
    "accepted_draft_tokens": "accepted",
    "drafted_rounds": "rounds",
    "plain_rounds": "plain_forwards",
}
"""The figure of a reply that each count adds up."""


class Counts:
    """Counts, each of which one thread alone changes."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(("requests", "refused", "replies", *_FIELDS), 0)

    def add(self, name: str, number: int = 1) -> None:
        self._counts[name] += number

    def add_reply(self, stats: Mapping[str, Any]) -> None:
        self.add("replies")
        for name, field in _FIELDS.items():
            self.add(name, stats[field])

    def as_text(self, gauges: Mapping[str, float]) -> str:
        rows: list[tuple[str, str, float]]
        rows = [(f"{name}_total", "counter", count) for name, count in self._counts.items()]
        rows += [(name, "gauge", value) for name, value in gauges.items()]
        return "".join(
            f"# TYPE mlxspec_{name} {kind}\nmlxspec_{name} {value}\n" for name, kind, value in rows
        )
