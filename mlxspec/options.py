"""What to load: plain values that can be read without MLX."""

from dataclasses import dataclass
from os import PathLike

DEFAULT_MODEL = "SmolLM2-135M-Instruct"
DEFAULT_LOOKAHEAD = 4
"""Tokens in the longest chain of a draft model."""
DEFAULT_KEEP = 4
"""First tokens that a rotating cache never evicts."""

DTYPES = ("auto", "float16", "bfloat16", "float32")
"""In which floating-point type a target computes; auto is float32 on a CPU."""


def check_dtype(dtype: str) -> None:
    """Raise ValueError unless a floating-point type is known by this name."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is not known; choose from {', '.join(DTYPES)}")


def check_threshold(threshold: float) -> None:
    """Raise ValueError unless the threshold of an early exit lies in (0, 1]."""
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must be more than 0 and at most 1; got {threshold}")


@dataclass(frozen=True)
class Options:
    """The arguments of `mlxspec.api.load` that shape the engine; see there."""

    drafter: str | PathLike[str] = "auto"
    draft_model: str | PathLike[str] | None = None
    lookahead: int = DEFAULT_LOOKAHEAD
    max_kv_size: int | None = None
    keep: int = DEFAULT_KEEP
    kv_bits: int | None = None
    learn: str | PathLike[str] | None = None
    exit_threshold: float | None = None
    dtype: str = "auto"

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        if self.exit_threshold is not None:
            check_threshold(self.exit_threshold)

    @property
    def asked(self) -> str:
        """The drafter in words; a draft model that is given is meant to draft."""
        given = "model" if self.draft_model is not None else "auto"
        return given if self.drafter == "auto" else str(self.drafter)
