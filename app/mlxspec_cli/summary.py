"""One line of figures under a reply."""

from collections.abc import Mapping
from typing import Any


def summary_line(stats: Mapping[str, Any], *, drafter: str) -> str:
    """Return speed, first token, forwards and acceptance of a reply in words."""
    parts = [
        f"{stats['generated_tokens']} tokens",
        f"{stats['generation_tps']:.1f} tok/s",
        f"first token after {stats['ttft_s']:.2f} s",
        f"{stats['target_forwards']} target forwards",
    ]
    if stats["rounds"]:
        parts.append(f"mean acceptance length {stats['mean_acceptance_length']:.2f}")
    return f"{drafter}: {' · '.join(parts)}"
