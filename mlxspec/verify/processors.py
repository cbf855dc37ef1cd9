"""Functions of a caller's own on the way from logits to a token, one call per node of a draft.

In plain decoding such a function is given the text so far. In a tree every node has a text of its
own, so it is called once for each, with that text: whichever branch becomes the reply, its tokens
were chosen by what plain decoding would have computed. That holds for functions of what they are
given alone, and for draws that do not know of each other.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx

from mlxspec.device.backend import sync, values
from mlxspec.drafts.tree import DraftTree
from mlxspec.params import LogitsProcessor, Sampler


def process(
    processors: Sequence[LogitsProcessor], logits: mx.array, tree: DraftTree, text: Sequence[int]
) -> mx.array:
    """Return (n_nodes, V) float32 logits after the processors, one after the other.

    Args:
        processors: What to call; a tree with drafts is waited for, as they want to see tokens.
        logits: (n_nodes, V) of the target.
        tree: The tree.
        text: Tokens up to and with the root.

    Raises:
        ValueError: A processor returned something else than logits.
    """
    rows = []
    for node, path in enumerate(_paths(tree)):
        tokens, row = mx.array([*text, *path], mx.int32), logits[node : node + 1]
        for processor in processors:
            row = _checked(processor, processor(tokens, row.astype(mx.float32)), row)
        rows.append(row.astype(mx.float32))
    return mx.concatenate(rows)


def choose(sampler: Sampler, logprobs: mx.array) -> mx.array:
    """Return (n,) int32: what a sampler draws after each of n nodes, from (n, V) float32.

    Raises:
        ValueError: It returned something else than one token.
    """
    return mx.concatenate([_one_token(sampler, row) for row in mx.split(logprobs, len(logprobs))])


def name_of(function: object) -> str:
    """Return what to call a function, for people."""
    return str(getattr(function, "__name__", type(function).__name__))


def _paths(tree: DraftTree) -> Iterator[list[int]]:
    """Yield the tokens of each node's path, the root left out."""
    if tree.n_nodes == 1:
        yield []
        return
    sync(tree.tokens, tree.ancestors)
    tokens: list[int] = values(tree.tokens)
    for row in values(tree.ancestors):
        yield [token for token, is_on in zip(tokens[1:], row[1:], strict=True) if is_on]


def _checked(processor: LogitsProcessor, result: Any, row: mx.array) -> mx.array:
    if not isinstance(result, mx.array) or result.shape != row.shape:
        raise ValueError(
            f"the logits processor {name_of(processor)!r} returned {_kind(result)}; it has to "
            f"return logits of the shape {row.shape}"
        )
    return result


def _one_token(sampler: Sampler, logprobs: mx.array) -> mx.array:
    result = sampler(logprobs)
    token = mx.array([result]) if isinstance(result, int) else result
    if not isinstance(token, mx.array) or token.size != 1:
        raise ValueError(
            f"the sampler {name_of(sampler)!r} returned {_kind(result)}; it has to return one token"
        )
    return token.reshape(1).astype(mx.int32)


def _kind(result: object) -> str:
    if isinstance(result, mx.array):
        return f"an array of the shape {result.shape}"
    return type(result).__name__
