"""Applies the masks of a grammar to the logits of a draft tree."""

from collections.abc import Iterator, Sequence

import mlx.core as mx
import numpy as np

from mlxspec.grammar.constraint import Constraint, Path


def masked(
    constraint: Constraint, logits: mx.array, tokens: Sequence[int], parents: Sequence[int]
) -> mx.array:
    """Return logits with -inf at the tokens that the grammar forbids after each node.

    A forbidden node, or one below it, keeps its logits: no rule reaches it. So does a node after
    which nothing may follow: the reply ends there, complete or with an error.

    The grammar is at the root of the tree. The (n_nodes, V) logits may be lazy; tokens beyond the
    tokenizer's are forbidden.
    """
    keeps = np.ones(logits.shape, np.bool_)
    for row, path in zip(keeps, paths_of(tokens, parents), strict=True):
        after = constraint.allowed(path)
        if after is not None and after.count:
            width = min(len(row), len(after.bits))
            row[:width], row[width:] = after.bits[:width], False
    return mx.where(mx.array(keeps), logits, -mx.inf)


def paths_of(tokens: Sequence[int], parents: Sequence[int]) -> Iterator[Path]:
    """Yield the tokens from below the root to each node; parents come before their children."""
    paths: list[Path] = []
    for token, parent in zip(tokens, parents, strict=True):
        paths.append((*paths[parent], token) if 0 <= parent < len(paths) else ())
        yield paths[-1]
