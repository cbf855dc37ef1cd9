"""The caller's own logits processors and samplers, called once per node of a draft.

In a tree every node has a different text before it, so a function is called with the text of each
node. Whichever path is accepted, its tokens follow from the results of plain decoding. This is true
for functions that depend only on their arguments, and for independent draws.
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
    """Return (n_nodes, V) float32 logits after the processors, applied in order.

    Processors need tokens on the host, so a lazy tree with draft nodes is computed first. `text`
    holds the tokens up to and including the root.
    """
    rows = []
    for node, path in enumerate(_paths(tree)):
        tokens, row = mx.array([*text, *path], mx.int32), logits[node : node + 1]
        for processor in processors:
            row = _checked(processor, processor(tokens, row.astype(mx.float32)), row)
        rows.append(row.astype(mx.float32))
    return mx.concatenate(rows)


def choose(sampler: Sampler, logprobs: mx.array) -> mx.array:
    """Return the tokens that a sampler draws from (n, V) float32 logprobs, (n,) int32."""
    return mx.concatenate([_one_token(sampler, row) for row in mx.split(logprobs, len(logprobs))])


def name_of(function: object) -> str:
    """Return the name of a function for messages."""
    return str(getattr(function, "__name__", type(function).__name__))


def _paths(tree: DraftTree) -> Iterator[list[int]]:
    """Yield the tokens of each node's path, without the root."""
    if tree.n_nodes == 1:  # without draft nodes there is no lazy tree to compute
        yield []
        return
    sync(tree.tokens, tree.ancestors)
    tokens: list[int] = values(tree.tokens)
    for row in values(tree.ancestors):
        yield [token for token, is_on in zip(tokens[1:], row[1:], strict=True) if is_on]


def _checked(processor: LogitsProcessor, result: Any, row: mx.array) -> mx.array:
    if not isinstance(result, mx.array) or result.shape != row.shape:
        raise ValueError(
            f"the logits processor {name_of(processor)!r} returned {_kind(result)}; it must "
            f"return logits of the shape {row.shape}"
        )
    return result


def _one_token(sampler: Sampler, logprobs: mx.array) -> mx.array:
    result = sampler(logprobs)
    token = mx.array([result]) if isinstance(result, int) else result
    if not isinstance(token, mx.array) or token.size != 1:
        raise ValueError(
            f"the sampler {name_of(sampler)!r} returned {_kind(result)}; it must return one token"
        )
    return token.reshape(1).astype(mx.int32)


def _kind(result: object) -> str:
    if isinstance(result, mx.array):
        return f"an array of the shape {result.shape}"
    return type(result).__name__
