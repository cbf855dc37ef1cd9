"""How near rows of logits in half precision come to the truth, and how near others come.

Two ways to round the same arithmetic agree in no digit that counts, so nothing is compared one by
one: a row may be off by what others are off, and by chance by somewhat more.
"""

import numpy as np

ONE_ROW, ALL_ROWS = 2.5, 1.5


def errors(logits, truth) -> np.ndarray:
    """(L,) root mean square error of each row."""
    return np.sqrt(((logits - truth) ** 2).mean(axis=1))


def assert_as_near(ours: np.ndarray, theirs: np.ndarray) -> None:
    """One row may be rounded twice as badly as another, but not all of them together."""
    assert np.sqrt((ours**2).mean()) < ALL_ROWS * np.sqrt((theirs**2).mean())
    assert ours.max() < ONE_ROW * theirs.max()
