"""Mean acceptance length from teacher-forced matches, without drafting anything.

For a chain of drafted tokens to be accepted up to depth d, every one of them has to be what the
target says there. Along the target's own text both are known for all places at once.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mlxspec.errors import MlxspecError

LOOKAHEAD = 4
"""Length of the chains that are measured where a drafter does not limit them itself."""


def runs(places: NDArray[np.intp], ahead: int) -> NDArray[np.intp]:
    """Return the indices of places that are followed by `ahead` more without a gap."""
    last = len(places) - ahead
    return np.flatnonzero(places[ahead:] == places[: max(last, 0)] + ahead)


def chain_matches(places: NDArray[np.intp], hits: Sequence[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """Return what `chain_figures` takes of one conversation; no chain leaves its answer.

    Args:
        places: (n,) places in a text, rising; a gap between two parts one answer from the next.
        hits: Per depth, (n,) whether the token drafted for each place is the target's.
    """
    starts = runs(places, len(hits) - 1)
    return np.stack([hit[starts + depth] for depth, hit in enumerate(hits)])


def chain_figures(matches: Sequence[NDArray[np.bool_]]) -> dict[str, object]:
    """Return mean acceptance length (bonus included) and acceptance by depth.

    Args:
        matches: Per conversation, (depths, n) bool: whether the token drafted at each depth is
            the target's, for chains that begin at each of n places.

    Raises:
        MlxspecError: There is no chain at all.
    """
    if not sum(one.shape[1] for one in matches):
        raise MlxspecError(
            "no held-out conversation has a greedy answer that is long enough to measure "
            "acceptance: make more with `mlxspec train data` and `mlxspec train features`"
        )
    joined = np.concatenate([one.astype(np.float64) for one in matches], axis=1)
    reached = np.cumprod(joined, axis=0).mean(axis=1)
    return {
        "mean_acceptance_length": 1.0 + float(reached.sum()),
        "top1_by_depth": [round(float(rate), 4) for rate in joined.mean(axis=1)],
    }
