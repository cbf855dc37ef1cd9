"""The tables of `--profile` and `--context`."""

from collections.abc import Sequence

from mlxspec.bench.context import ContextFigures
from mlxspec.bench.stages import ForwardProfile, RoundProfile

_FIRST, _CELL = 24, 10
CONTEXT_HEADER = (
    f"{'arm':<22}{'context':>8}  {'cache':<24}{'first token, s':>15}{'ms/token':>10}"
    f"{'tokens/forward':>15}{'cache, GB':>11}{'in all, GB':>11}"
)


def context_row(found: ContextFigures) -> str:
    """Return the row of the table below `CONTEXT_HEADER`."""
    ms = "-" if found.ms_per_token is None else f"{found.ms_per_token:.1f}"
    return (
        f"{found.arm:<22}{found.context:>8}  {found.cache:<24}{found.prompt_s:>15.1f}{ms:>10}"
        f"{found.tokens_per_forward:>15.2f}{found.cache_gb:>11.3f}{found.own_memory_gb:>11.3f}"
    )


def round_table(profile: RoundProfile) -> str:
    """Return where the time of rounds went, the longest stage first."""
    total = sum(profile.ms.values())
    lines = [
        f"{profile.drafter}: {profile.tokens} tokens in {profile.forwards} target forwards, "
        f"{total:.1f} ms each"
    ]
    for stage, ms in sorted(profile.ms.items(), key=lambda item: -item[1]):
        lines.append(f"{'  ' + stage:<{_FIRST}}{ms:>{_CELL}.2f} ms{ms / total:>8.1%}")
    return "\n".join(lines)


def forward_table(profiles: Sequence[ForwardProfile]) -> str:
    """Return where the time of forwards goes, a column for each width."""
    parts = list(dict.fromkeys(part for profile in profiles for part in profile.ms))
    rows = {
        "rows": [f"{profile.width}" for profile in profiles],
        "at once, ms": [f"{profile.whole_ms:.1f}" for profile in profiles],
        "part by part, ms": [f"{sum(profile.ms.values()):.1f}" for profile in profiles],
    }
    for part in parts:
        rows[f"  {part}"] = [f"{profile.ms.get(part, 0.0):.1f}" for profile in profiles]
    return "\n".join(
        f"{name:<{_FIRST}}" + "".join(f"{cell:>{_CELL}}" for cell in cells)
        for name, cells in rows.items()
    )
