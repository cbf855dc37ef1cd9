"""The roofline of plain decoding: each token needs one forward, and a forward reads all weights.

So plain decoding cannot be faster than the memory's bandwidth over the bytes of a forward.
Drafts can, because one forward then yields several tokens. The paper is Williams et al.,
"Roofline: An Insightful Visual Performance Model for Multicore Architectures" (2009).
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Roofline:
    """The bound that the memory sets to plain decoding.

    `gb_per_s` is the read bandwidth. A forward of one row reads all `weight_bytes` once.
    """

    gb_per_s: float
    weight_bytes: int

    @property
    def least_ms(self) -> float:
        """The least time of a forward in milliseconds."""
        return self.weight_bytes / self.gb_per_s / 1e6

    @property
    def most_tokens_per_s(self) -> float:
        """The highest speed of plain decoding in tokens/s."""
        return 1e3 / self.least_ms

    def describe(self, speeds: Mapping[str, float]) -> str:
        """Return two sentences: the bound, and measured speeds as shares of it.

        `speeds` are tokens/s by the name of the drafter; `none` is plain decoding.
        """
        bound = (
            f"The memory is read at {self.gb_per_s:.1f} GB/s, so a forward over "
            f"{self.weight_bytes / 1e6:.0f} MB of weights takes {self.least_ms:.1f} ms or more, "
            f"and plain decoding writes at most {self.most_tokens_per_s:.0f} tokens/s."
        )
        shares = ", ".join(
            f"{'plain' if name == 'none' else name} {speed / self.most_tokens_per_s:.0%}"
            for name, speed in speeds.items()
        )
        return f"{bound} Reached of that: {shares}." if shares else bound
