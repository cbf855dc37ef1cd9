"""Mean acceptance length from teacher-forced matches; nothing is drafted or verified.

A chain is accepted up to depth d if each of its tokens is the target's own next token. Along a
text that the target wrote, one forward gives both tokens for all positions.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mlxspec.errors import MlxspecError

LOOKAHEAD = 4
"""Depth of the measured chains, for drafters without a limit of their own."""


def runs(places: NDArray[np.intp], ahead: int) -> NDArray[np.intp]:
    """Return the indices of positions that `ahead` more positions follow without a gap."""
    last = len(places) - ahead
    # each is at least 1 more than the one before, so a difference of `ahead` excludes a gap
    return np.flatnonzero(places[ahead:] == places[: max(last, 0)] + ahead)


def chain_matches(places: NDArray[np.intp], hits: Sequence[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """Return the (depths, n_chains) bool matches of one conversation; no chain crosses two answers.

    Args:
        places: (n,) positions in a text, ascending; a gap separates two answers.
        hits: Per depth, (n,) whether the token drafted for each position is the target's.
    """
    starts = runs(places, len(hits) - 1)
    return np.stack([hit[starts + depth] for depth, hit in enumerate(hits)])


def chain_figures(matches: Sequence[NDArray[np.bool_]]) -> dict[str, object]:
    """Return mean acceptance length (bonus included) and acceptance by depth.

    Each conversation has (depths, n) bool matches: whether the token drafted at each depth is the
    target's, for chains that start at each of n positions. Raises `MlxspecError` if there is no
    chain.
    """
    if not sum(one.shape[1] for one in matches):
        raise MlxspecError(
            "no held-out conversation has a greedy answer that is long enough to measure "
            "acceptance: make more with `mlxspec train data` and `mlxspec train features`"
        )
    joined = np.concatenate([one.astype(np.float64) for one in matches], axis=1)
    # a chain reaches depth d only if all tokens before it match as well
    reached = np.cumprod(joined, axis=0).mean(axis=1)
    return {
        "mean_acceptance_length": 1.0 + float(reached.sum()),
        "top1_by_depth": [round(float(rate), 4) for rate in joined.mean(axis=1)],
    }
