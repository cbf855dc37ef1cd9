"""Published costs of verifying M rows on Apple's chips, relative to one row.

They are for 4-bit weights. They were not measured for this project, and most are for single matrix
products. On M1 and M2 the kernel reads the weights once per row, so M rows cost M times one row.
"""

import re

CURVES = {  # cost relative to one row, by rows
    "M1, M2 (weights read per row)": {rows: float(rows) for rows in range(1, 33)},
    "M3 Ultra (mlx #4265)": {1: 1.0, 4: 1.0, 6: 1.28, 8: 1.57},
    "M4 Pro (mlx #3839)": {1: 1.0, 2: 1.03, 3: 1.22, 4: 1.47, 6: 2.07, 8: 2.69},
    "M5 Max (mlx #3791)": {1: 1.0, 3: 1.12, 5: 1.48, 8: 2.25, 12: 3.2},
}


def curve_of(device: str) -> str:
    """Return the name of the curve for the generation of a chip, such as "Apple M3 Pro", or ""."""
    generation = re.search(r"\bM\d+\b", device)
    if generation is None:
        return ""
    words = rf"\b{generation[0]}\b"
    return next((name for name in CURVES if re.search(words, name)), "")
