"""Apple's chips: what rows cost on each by published measurements, and what a chip lacks.

MLX chooses the kernel of a product by the generation of the GPU, 13 for M1 to 18 for M6, and by the
packing of the weights. Each kernel reads the weights once for some rows, so costs rise in steps:

- n rows read affine weights n times on M1 and M2; elsewhere up to 5 rows share one reading;
- from 6 rows (M1, M2), 12 (Ultra) or 13 on, one tile of 32 rows costs the same for any of them;
- up to 15 rows share a reading of 16-bit weights from M3 on; before, 2 rows pay for a tile.

The limits are those of matrices with more than 4,096 inputs or outputs, in mlx 0.32. Where a cost
was measured here, that one counts: this table only starts a budget and judges a report.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mlxspec.device import backend

_TILE = 32  # rows
_FIRST, _NEWEST = 13, 18  # generations
_PACKINGS = {
    **dict.fromkeys(("mxfp4", "nvfp4", "mxfp8"), "fp"),
    **dict.fromkeys(("float16", "bfloat16"), "half"),
}


@dataclass(frozen=True)
class Steps:
    """Published costs of rows on the chips of some generations, relative to one row.

    `source` names the measured chip, and where its figures stand; `last` has the costs of the rows
    at the ends of the steps, and `tile` that of a tile, which begins after them.
    """

    source: str
    generations: tuple[int, ...]
    packing: str  # "affine", "fp" (mxfp4, nvfp4, mxfp8) or "half" (16 bits)
    last: Mapping[int, float]
    tile: float
    is_ultra: bool = False

    @property
    def costs(self) -> dict[int, float]:
        """The costs by rows, to the end of the second tile."""
        tiles = {_TILE: self.tile, _TILE + 1: 2 * self.tile, 2 * _TILE: 2 * self.tile}
        return {**self.last, max(self.last) + 1: self.tile, **tiles}


_OLD, _NEW = (13, 14), (15, 16, 17, 18)
_M3_ULTRA = {1: 1.0, 4: 1.0, 6: 1.28, 8: 1.57, 11: 2.36}
_M5_MAX = {1: 1.0, 3: 1.12, 5: 1.48, 8: 2.25, 12: 3.2}
TABLE = (
    # Without a measurement a tile costs as much as the rows from which on MLX takes it, and three
    # readings half as much again as two.
    Steps("M1, M2 (kernels of mlx 0.32)", _OLD, "affine", {1: 1.0, 5: 5.0}, 6.0),
    Steps("M1, M2 Ultra (kernels of mlx 0.32)", _OLD, "affine", {1: 1.0, 11: 11.0}, 12.0, True),
    Steps("M2 Pro (mlx #3764)", _OLD, "fp", {1: 1.0, 2: 1.54, 4: 2.86, 5: 3.5}, 6.0),
    Steps("M1 Pro (mlx #3967)", _OLD, "half", {1: 1.0}, 2.0),
    Steps(
        "M3 Max (mlx #3863)",
        (15,),
        "affine",
        {1: 1.0, 2: 1.0, 4: 1.28, 6: 2.04, 8: 2.5, 9: 3.14, 12: 3.75},
        3.94,
    ),
    Steps(
        "M4 Pro (mlx #3839)",
        (16,),
        "affine",
        {1: 1.0, 2: 1.03, 3: 1.22, 4: 1.47, 6: 2.07, 8: 2.69, 12: 4.03},
        4.5,
    ),
    Steps("M3 Ultra (mlx #4265)", _NEW, "affine", _M3_ULTRA, 3.4, True),
    Steps("M5 Max (mlx #3791)", (17, 18), "affine", _M5_MAX, 3.5),
    Steps("M3 Ultra (mlx #3888)", _NEW, "half", {1: 1.0, 2: 1.15, 15: 1.15}, 2.0),
)


@dataclass(frozen=True)
class Chip:
    """A chip of Apple, such as "M3 Max"; `generation` is that of its GPU."""

    name: str
    generation: int

    @property
    def has_bfloat16(self) -> bool:
        """Whether the GPU computes in bfloat16 itself; M1 and M2 convert each number."""
        return self.generation not in _OLD

    def steps(self, weights: str) -> Steps | None:
        """Return the published costs for weights in words, such as "4-bit"; None for others."""
        word = weights.replace(",", " ").split()[0]
        packing = _PACKINGS.get(word, "affine" * word.endswith("-bit"))
        if packing == "fp" and self.generation not in _OLD:
            packing = "affine"  # the same kernels, which cost as much
        fitting = [s for s in TABLE if self.generation in s.generations and s.packing == packing]
        fitting.sort(key=lambda steps: steps.is_ultra != self.name.endswith("Ultra"))
        return fitting[0] if fitting else None


def chip_of(device: str) -> Chip | None:
    """Return the chip of a device's name, such as "Apple M3 Max"; None if it is in no table."""
    found = re.search(r"\bApple (M(\d+)\b( Pro| Max| Ultra)?)", device)
    generation = _FIRST - 1 + int(found[2]) if found else 0
    return Chip(found[1], generation) if found and _FIRST <= generation <= _NEWEST else None


def here() -> Chip | None:
    """Return the chip whose GPU MLX computes on; None on a CPU."""
    return None if backend.is_cpu() else chip_of(backend.facts().device)
