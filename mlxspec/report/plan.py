"""The parts of a report and their time limits: less than ten minutes together.

A part is a module of `parts`. A module that runs with several settings of MLX has several parts,
because MLX reads its settings when it is imported.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

SECONDS = 600.0
GRACE_S = 6.0
"""Seconds that a process may take beyond the limit of its part, to finish a measurement."""

_BUFFERS = ("50", "200", "500")


@dataclass(frozen=True)
class Part:
    """One process of measurements, with a time limit in seconds.

    `doing` is shown to the user. A `module` of "" has the same name as the part. `settings` are
    environment variables of the process.
    """

    name: str
    seconds: float
    doing: str
    module: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "module", self.module or self.name)


PARTS = (
    Part("machine", 15, "the machine"),
    Part("first_frame", 30, "the app's first frame"),
    Part("forwards", 40, "forwards of the default model"),
    Part("replies", 110, "a reply of every drafter"),
    Part("lossless", 150, "whether drafts change the output"),
    Part("drift", 75, "rounding in each precision"),
    Part("products", 75, "products of 1 to 32 rows"),
    Part("attention", 45, "attention of 1 to 32 rows"),
)


def buffer_name(operations: str) -> str:
    """Return the name of the part with this number of operations per command buffer."""
    return f"forwards_{operations}_operations"


_BUFFER_PARTS = tuple(
    Part(
        buffer_name(count),
        12,
        f"forwards with {count} operations a buffer",
        "forwards",
        {"MLX_MAX_OPS_PER_BUFFER": count},
    )
    for count in _BUFFERS
)
BUFFER_NAMES = tuple(part.name for part in _BUFFER_PARTS)


def parts_for(*, is_mac: bool) -> tuple[Part, ...]:
    """Return the parts for a machine; only Metal has command buffers."""
    return PARTS + (_BUFFER_PARTS if is_mac else ())
