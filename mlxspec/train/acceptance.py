"""Mean acceptance length from teacher-forced matches, without drafting anything.

For a chain of drafted tokens to be accepted up to depth d, every one of them has to be what the
target says there. Along the target's own text both are known for all places at once.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def chain_figures(matches: Sequence[NDArray[np.bool_]]) -> dict[str, object]:
    """Return mean acceptance length (bonus included) and acceptance by depth.

    Args:
        matches: Per conversation, (depths, n) bool: whether the token drafted at each depth is
            the target's, for chains that begin at each of n places.
    """
    joined = np.concatenate([one.astype(np.float64) for one in matches], axis=1)
    reached = np.cumprod(joined, axis=0).mean(axis=1)
    return {
        "mean_acceptance_length": 1.0 + float(reached.sum()),
        "top1_by_depth": [round(float(rate), 4) for rate in joined.mean(axis=1)],
    }
