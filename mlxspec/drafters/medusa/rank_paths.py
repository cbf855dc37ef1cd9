"""Rank paths: for example a head's best guess, then the next head's third best.

Heads that predict several tokens at once have the same guesses below every node of a depth. So a
path of their draft tree is a tuple of ranks: (0, 2) is the first head's best guess, then the second
head's third best. The value of a path is a product of one number per head (Medusa, Cai et al. 2024,
https://arxiv.org/abs/2401.10774).
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from heapq import heappop, heappush

RankPath = tuple[int, ...]


@lru_cache(maxsize=64)
def possible_paths(num_heads: int, width: int, budget: int) -> tuple[RankPath, ...]:
    """Return the paths that can be among the `budget` most probable, for any probabilities.

    A path is never better than a path of its length or shorter with no larger rank at any depth. If
    these paths, itself included, are more than `budget`, it is left out.

    Args:
        num_heads: Length of the longest path.
        width: Guesses per head.
        budget: Number of paths to choose later.

    Returns:
        Paths in lexical order: each after its prefixes and after all paths that are never worse.
    """

    def below(path: RankPath, alike: int, better: int) -> Iterator[RankPath]:
        for rank in range(width):
            as_long = alike * (rank + 1)  # paths of this length with no larger rank at any depth
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

    Paths with product 0 are left out; of equal products the lexically first path wins.

    Args:
        accuracies: Per head, the share of correct guesses of each rank.
        budget: Largest number of paths.
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
    """Return paths in the given order, but each after its prefixes.

    Raises:
        ValueError: A path is empty, has a negative rank, occurs twice, or lacks a prefix.
    """
    known = set(paths)
    if len(known) < len(paths):
        raise ValueError("choices have a path twice; list each node of a tree once")
    ordered: dict[RankPath, None] = {}
    for path in paths:
        if not path or min(path) < 0:
            raise ValueError(f"a path of ranks is one rank or more, 0 for the best, not {path}")
        beginnings = [path[:length] for length in range(1, len(path) + 1)]
        missing = [beginning for beginning in beginnings if beginning not in known]
        if missing:
            raise ValueError(f"the path {path} has no parent: add {missing[0]} to the choices")
        ordered |= dict.fromkeys(beginnings)
    return tuple(ordered)
