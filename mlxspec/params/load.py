"""What to load: plain values that can be read without MLX."""

from dataclasses import dataclass
from os import PathLike

from mlxspec.params.checks import choice, place, real, refusal, settle, text, whole
from mlxspec.params.generation import CHAIN_RULES, ChainRule

DEFAULT_MODEL = "SmolLM2-135M-Instruct"
DEFAULT_LOOKAHEAD = 4
"""Tokens in the longest chain of a draft model."""
DEFAULT_KEEP = 4
"""First tokens that a rotating cache never evicts."""

DTYPES = ("auto", "float16", "bfloat16", "float32")
"""In which floating-point type a target computes; auto is float32 on a CPU."""


def check_dtype(dtype: str) -> None:
    """Raise ValueError unless a floating-point type is known by this name."""
    if text("dtype", dtype) not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is not known; choose from {', '.join(DTYPES)}")


KV_BITS = (4, 8)
"""Bits in which keys and values can be kept quantised."""


def check_threshold(threshold: float, name: str = "threshold") -> float:
    """Return the threshold of an early exit; raises ValueError unless it lies in (0, 1]."""
    return real(name, threshold, "more than 0 and at most 1", lambda share: 0 < share <= 1)


def _given(value: int | None, name: str) -> int | None:
    return None if value is None else whole(name, value, "1 or more", least=1)


@dataclass(frozen=True)
class DraftLimits:
    """How wide and how deep drafts may be; None leaves that to each drafter.

    Attributes:
        branching: Children of a node at most.
        depth: Nodes on a path below the root at most; the longest chain of those that draft one.

    Raises:
        ValueError: One is no whole number of 1 or more.
    """

    branching: int | None = None
    depth: int | None = None

    def __post_init__(self) -> None:
        settle(
            self,
            branching=_given(self.branching, "branching"),
            depth=_given(self.depth, "depth"),
        )

    def describe(self) -> str:
        """Return what is limited in words, "" where nothing is."""
        named = {"branching": self.branching, "depth": self.depth}
        return ", ".join(f"{name} {most}" for name, most in named.items() if most is not None)


FREE = DraftLimits()


@dataclass(frozen=True)
class Options:
    """The arguments of `mlxspec.api.load` that shape the engine; see there.

    Raises:
        ValueError: A value is of the wrong type or out of range.
    """

    drafter: str | PathLike[str] = "auto"
    draft_model: str | PathLike[str] | None = None
    lookahead: int = DEFAULT_LOOKAHEAD
    max_kv_size: int | None = None
    keep: int = DEFAULT_KEEP
    kv_bits: int | None = None
    learn: str | PathLike[str] | None = None
    exit_threshold: float | None = None
    dtype: str = "auto"
    branching: int | None = None
    depth: int | None = None
    chain_rule: ChainRule = "block"

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        place("drafter", self.drafter)
        for name in ("draft_model", "learn"):
            if getattr(self, name) is not None:
                place(name, getattr(self, name))
        if self.exit_threshold is not None:
            threshold = check_threshold(self.exit_threshold, "exit_threshold")
            settle(self, exit_threshold=threshold)
        if self.kv_bits is not None:
            settle(self, kv_bits=whole("kv_bits", self.kv_bits, "4 or 8"))
            if self.kv_bits not in KV_BITS:
                raise refusal("kv_bits", "4 or 8", self.kv_bits)
        choice("chain_rule", self.chain_rule, CHAIN_RULES)
        settle(
            self,
            lookahead=whole("lookahead", self.lookahead, "1 or more", least=1),
            max_kv_size=_given(self.max_kv_size, "max_kv_size"),
            keep=whole("keep", self.keep),
            branching=self.limits.branching,
            depth=self.limits.depth,
        )

    @property
    def limits(self) -> DraftLimits:
        """How wide and how deep drafts may be."""
        return DraftLimits(self.branching, self.depth)

    @property
    def asked(self) -> str:
        """The drafter in words; a draft model that is given is meant to draft."""
        given = "model" if self.draft_model is not None else "auto"
        return given if self.drafter == "auto" else str(self.drafter)
