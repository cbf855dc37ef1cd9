"""The parts of a report, and how long each may take: less than ten minutes together.

A part is a module of `parts`. One that is to run with other settings of MLX stands here twice,
because MLX reads them when it is imported.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

SECONDS = 600.0
GRACE_S = 6.0
"""What a process may take beyond the time of its part, to end what it is at."""

_BUFFERS = ("50", "200", "500")


@dataclass(frozen=True)
class Part:
    """Something to measure.

    Attributes:
        name: What it is called in the file.
        seconds: How long it may take.
        doing: What it does, for whoever waits.
        module: Where it stands below `parts`; left out, its name.
        settings: Environment variables to set for it.
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
    Part("lossless", 150, "whether drafts change what is said"),
    Part("drift", 75, "rounding in each precision"),
    Part("products", 75, "products of 1 to 32 rows"),
    Part("attention", 45, "attention of 1 to 32 rows"),
)


def buffer_name(operations: str) -> str:
    """Return what the part with so many operations in a command buffer is called."""
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
    """Return the parts that say something on a machine; command buffers are Metal's."""
    return PARTS + (_BUFFER_PARTS if is_mac else ())
