"""Products of axes, sampled by covering arrays; the slow suite has one that is stronger by one.

A covering array of strength two has every pair of values of two axes in some row (Cohen et al.
1997, "The AETG system", section 3). The rows are the same in every run.
"""

from collections import Counter
from itertools import combinations, product

import pytest


def pairwise(*, indirect=(), **axes):
    """Parametrise a test with every pair of values; rows are slow that triples of values need.

    Args:
        indirect: Arguments that are fixtures and take their value as `request.param`.
        axes: The values of each argument; a value with an id of its own is a `pytest.param`.
    """
    return _sampled(axes, indirect, strength=2)


def each_value(*, indirect=(), **axes):
    """Parametrise a test with every value; rows are slow that pairs of values need."""
    return _sampled(axes, indirect, strength=1)


def _sampled(axes, indirect, strength):
    columns = [_column(name, values) for name, values in axes.items()]
    sizes = [len(column) for column in columns]
    quick = covering(sizes, strength)
    rows = []
    for places in sorted(quick | covering(sizes, min(strength + 1, len(sizes)))):
        cells = [column[place] for column, place in zip(columns, places, strict=True)]
        marks = () if places in quick else pytest.mark.slow
        values, ids = zip(*cells, strict=True)
        rows.append(pytest.param(*values, marks=marks, id="-".join(ids)))
    return pytest.mark.parametrize(tuple(axes), rows, indirect=indirect)


def covering(sizes, strength):
    """Return rows of indices in which any values of `strength` axes stand side by side.

    Args:
        sizes: The number of values of each axis.
        strength: 1 for every value, 2 for every pair of values.
    """
    missing = dict.fromkeys(
        tuple(zip(names, values, strict=True))
        for names in combinations(range(len(sizes)), strength)
        for values in product(*(range(sizes[name]) for name in names))
    )
    used, rows = Counter(), set()
    while missing:
        row = dict(next(iter(missing)))
        for axis in range(len(sizes)):
            if axis not in row:
                row[axis] = _most_useful(axis, sizes[axis], row, missing, strength, used)
        used.update(row.items())
        for covered in combinations(sorted(row.items()), strength):
            missing.pop(covered, None)
        rows.add(tuple(row[axis] for axis in range(len(sizes))))
    return rows


def _most_useful(axis, size, row, missing, strength, used):
    """The value of an axis that covers most together with a row; of equal ones the least used."""

    def gain(value):
        beside = combinations(sorted(row.items()), strength - 1)
        return sum(tuple(sorted([*others, (axis, value)])) in missing for others in beside)

    return max(range(size), key=lambda value: (gain(value), -used[axis, value]))


def _column(name, values):
    """Each value of an axis with its part of the test's id."""
    return [_cell(name, place, value) for place, value in enumerate(values)]


def _cell(name, place, value):
    if isinstance(value, type(pytest.param())):
        return value.values[0], value.id
    if isinstance(value, str | int | float | tuple | None):
        return value, str(value)
    return value, getattr(value, "__name__", f"{name}{place}")
