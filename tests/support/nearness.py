"""Compare the errors of logits in half precision with the errors of another implementation.

Two ways to round the same arithmetic differ in the last digits, so single numbers are not compared:
the error of a row may be as large as that of the other implementation, and a little larger.
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
