"""Beginnings of earlier texts, kept with their rows: a prompt that shares one need not read it.

    root ─ "You are an agent ..." ─┬─ "user: sort this" ─ "assistant: ..."
                                   └─ "user: explain that"

A trie of token runs: each node holds the rows of its own run alone, so what two texts share is
held once. Where all nodes are more than may be held, the leaf asked for longest ago is dropped;
arrays of MLX never change, so whoever goes on from its rows has them still. Only rows of a cache
that can be cut anywhere (`Cache.can_be_cut`) belong here.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

import mlx.core as mx

from mlxspec.kv.storage import GROWTH, blank_rows
from mlxspec.trace.difference import common_length

Planes = list[mx.array]
"""Rows of all layers as arrays (1, Hkv, L, D), in the order of `Cache.rows`."""


@dataclass(eq=False)
class _Node:
    """A run of tokens below another one.

    Attributes:
        tokens: The run; empty for the root alone.
        planes: The rows of these tokens.
        above: The node before; None for the root.
        below: The nodes after, by their first token.
        used_at: When a text last went through, in calls.
    """

    tokens: list[int]
    planes: Planes
    above: "_Node | None" = None
    below: dict[int, "_Node"] = field(default_factory=dict)
    used_at: int = 0

    @property
    def nbytes(self) -> int:
        return sum(plane.nbytes for plane in self.planes)


@dataclass(frozen=True)
class Prefix:
    """The longest known beginning of a text.

    Attributes:
        length: Its tokens.
        planes: Its rows and room for some more behind them, a copy; none where `length` is 0.
    """

    length: int
    planes: Planes


class PrefixCache:
    """Rows of the beginnings of texts, up to a number of bytes and of tokens.

    Attributes:
        max_bytes: The most bytes that it holds; 0 holds nothing.
        max_tokens: The most tokens that it holds: rows of a tiny model are smaller than what
            Python needs to find them.
        nbytes: Bytes that it holds now.
        num_tokens: Tokens that it holds now.
    """

    def __init__(self, max_bytes: int, max_tokens: float = inf) -> None:
        """Begin empty.

        Raises:
            ValueError: `max_bytes` is negative.
        """
        if max_bytes < 0:
            raise ValueError(f"max_bytes must be 0 or more; got {max_bytes}")
        self.max_bytes = max_bytes
        self.max_tokens = max_tokens
        self._now = 0
        self.clear()

    def clear(self) -> None:
        """Forget all texts."""
        self.nbytes = self.num_tokens = 0
        self._root = _Node([], [])

    def find(self, tokens: Sequence[int]) -> Prefix:
        """Return the longest beginning of a text whose rows are here."""
        parts, length = list[Planes](), 0
        for node, shared in self._walk(tokens):
            parts.append([plane[:, :, :shared] for plane in node.planes])
            length += shared
        # With the room that the next row needs anyway, so that the rows are copied once, not twice.
        joined = [
            mx.concatenate([*own, blank_rows(own[0], 1, GROWTH)], axis=2)
            for own in zip(*parts, strict=True)
        ]
        return Prefix(length, joined)

    def add(self, tokens: Sequence[int], rows: Callable[[int, int], Planes]) -> None:
        """Store the rows of a text, those alone that are not here yet.

        Args:
            tokens: The text.
            rows: Returns the rows from one index to another.
        """
        if not self.max_bytes:
            return
        last, length = self._root, 0
        for node, shared in self._walk(tokens):
            last, length = node, length + shared
            if shared < len(node.tokens):
                last = self._split(node, shared)
        if length < len(tokens):
            own = mx.arange(len(tokens) - length)  # taken, not cut: a slice keeps the whole buffer
            planes = [mx.take(plane, own, axis=2) for plane in rows(length, len(tokens))]
            mx.eval(planes)
            new = _Node(list(tokens[length:]), planes, last, used_at=self._now)
            last.below[tokens[length]] = new
            self.nbytes += new.nbytes
            self.num_tokens += len(new.tokens)
        self._shrink()

    def _walk(self, tokens: Sequence[int]) -> Iterator[tuple[_Node, int]]:
        """Yield the nodes along a text, each with how many of its tokens are the text's."""
        self._now += 1
        node, at = self._root, 0
        while at < len(tokens) and (below := node.below.get(tokens[at])):
            shared = common_length(below.tokens, tokens[at : at + len(below.tokens)])
            below.used_at = self._now
            yield below, shared
            if shared < len(below.tokens):
                return
            node, at = below, at + shared

    def _split(self, node: _Node, length: int) -> _Node:
        """Cut a node in two; return the first one."""
        assert node.above is not None, "the root has no tokens to cut"
        first = _Node(
            node.tokens[:length],
            [mx.take(plane, mx.arange(length), axis=2) for plane in node.planes],
            node.above,
            used_at=node.used_at,
        )
        rest = mx.arange(length, len(node.tokens))
        node.planes = [mx.take(plane, rest, axis=2) for plane in node.planes]
        mx.eval(first.planes, node.planes)
        node.tokens, node.above = node.tokens[length:], first
        assert first.above is not None
        first.above.below[first.tokens[0]] = first
        first.below[node.tokens[0]] = node
        return first

    def _shrink(self) -> None:
        while self.nbytes > self.max_bytes or self.num_tokens > self.max_tokens:
            oldest = min(self._leaves(self._root), key=lambda leaf: leaf.used_at)
            assert oldest.above is not None, "an empty cache takes no bytes"
            del oldest.above.below[oldest.tokens[0]]
            self.nbytes -= oldest.nbytes
            self.num_tokens -= len(oldest.tokens)

    def _leaves(self, root: _Node) -> Iterator[_Node]:
        waiting = [root]
        while waiting:
            node = waiting.pop()
            waiting += node.below.values()
            if not node.below:
                yield node
