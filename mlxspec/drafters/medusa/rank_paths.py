"""Paths of ranks: a head's best guess, then the next head's third best, and so on.

Heads that guess several tokens ahead at once say the same below every node of a depth. A path in
their draft tree is then a tuple of ranks, (0, 2) for the first head's best guess followed by the
second head's third, and what it is worth is a product of one number per head (Medusa, Cai et al.
2024, https://arxiv.org/abs/2401.10774).
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from heapq import heappop, heappush

RankPath = tuple[int, ...]


@lru_cache(maxsize=64)
def possible_paths(num_heads: int, width: int, budget: int) -> tuple[RankPath, ...]:
    """Return the paths that can be among the `budget` most probable, whatever the probabilities.

    A path is no better than any path of its length or shorter whose ranks are nowhere larger;
    where these, itself included, are more than `budget`, it is out.

    Args:
        num_heads: Length of the longest path.
        width: Guesses per head.
        budget: Number of paths to choose later.

    Returns:
        Paths in lexical order: each behind its beginnings and behind all that no probabilities
        can make worse.
    """

    def below(path: RankPath, alike: int, better: int) -> Iterator[RankPath]:
        for rank in range(width):
            as_long = alike * (rank + 1)  # paths of this length with ranks nowhere larger
            if better + as_long > budget:
                return
            yield (*path, rank)
            if len(path) + 1 < num_heads:
                yield from below((*path, rank), as_long, better + as_long)

    return tuple(below((), 1, 0))


@lru_cache(maxsize=64)
def most_accurate_paths(
    accuracies: tuple[tuple[float, ...], ...], budget: int
) -> tuple[RankPath, ...]:
    """Return the `budget` paths with the largest products of accuracies, the largest first.

    Paths that were never right are left out; of equal products the lexically first is taken.

    Args:
        accuracies: Per head, how often its guess of each rank was right.
        budget: Most paths.
    """
    heap: list[tuple[float, RankPath]] = [(-1.0, ())]
    paths: list[RankPath] = []
    while heap and len(paths) <= budget:
        negative, path = heappop(heap)
        paths.append(path)
        row = accuracies[len(path)] if len(path) < len(accuracies) else ()
        for rank, accuracy in enumerate(row):
            if accuracy > 0:
                heappush(heap, (negative * accuracy, (*path, rank)))
    return tuple(paths[1:])


def parents_first(paths: Sequence[RankPath]) -> tuple[RankPath, ...]:
    """Return paths in the order given, but each behind its beginnings.

    Raises:
        ValueError: A path is empty, has a negative rank, is there twice, or its beginning is not.
    """
    known = set(paths)
    if len(known) < len(paths):
        raise ValueError("choices hold a path twice; each node of a tree is named once")
    ordered: dict[RankPath, None] = {}
    for path in paths:
        if not path or min(path) < 0:
            raise ValueError(f"a path of ranks is one rank or more, 0 for the best, not {path}")
        beginnings = [path[:length] for length in range(1, len(path) + 1)]
        missing = [beginning for beginning in beginnings if beginning not in known]
        if missing:
            raise ValueError(f"the path {path} hangs in the air: add {missing[0]} to the choices")
        ordered |= dict.fromkeys(beginnings)
    return tuple(ordered)
