"""Rows of the prefixes of earlier texts: a prompt that shares a prefix need not compute it.

    root ─ "You are an agent ..." ─┬─ "user: sort this" ─ "assistant: ..."
                                   └─ "user: explain that"

A trie of token runs, each with only its own rows, so a shared prefix is stored once. If they exceed
the limit, the least recently used leaf is dropped. Only rows of a cache that can be cut anywhere
(`Cache.can_be_cut`) belong here. Rows of steady forwards have a trie of their own, with a chunk of
a prompt in place of a token: all rows of a chunk are computed together.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

import mlx.core as mx

from mlxspec.kv.prefix_files import Planes, PrefixFiles
from mlxspec.kv.steady import CHUNK, Steady
from mlxspec.kv.storage import GROWTH, blank_rows
from mlxspec.trace.difference import common_length

_MOST_UNSAVED = 64  # texts that wait for idle time


@dataclass(eq=False)
class _Node:
    """A run of tokens below another one, and their rows; a root has none."""

    tokens: list[int]
    planes: Planes
    unit: int  # tokens that are shared as a whole or not at all
    above: "_Node | None" = None
    below: dict[tuple[int, ...], "_Node"] = field(default_factory=dict)  # by their first unit
    used_at: int = 0  # call number of its last use

    @property
    def first(self) -> tuple[int, ...]:
        return tuple(self.tokens[: self.unit])

    @property
    def nbytes(self) -> int:
        return sum(plane.nbytes for plane in self.planes)


@dataclass(frozen=True)
class Prefix:
    """The longest known prefix of a text."""

    length: int
    planes: Planes  # a copy of its rows, with room for more; empty if `length` is 0

    def rows(self, start: int, end: int) -> Planes:
        return [plane[:, :, start:end] for plane in self.planes]


class PrefixCache:
    """Rows of the prefixes of texts, up to a number of bytes and of tokens.

    Tokens count too, because rows of a tiny model are smaller than the Python objects that index
    them. With `max_bytes` 0 nothing is stored. `files` are looked at where they know more.
    """

    def __init__(
        self, max_bytes: int, max_tokens: float = inf, *, files: PrefixFiles | None = None
    ) -> None:
        """Start empty."""
        if max_bytes < 0:
            raise ValueError(f"max_bytes must be 0 or more; got {max_bytes}")
        self.max_bytes = max_bytes
        self.max_tokens = max_tokens
        self._files, self._now = files, 0
        self.clear()

    def clear(self) -> None:
        """Forget all texts."""
        self.nbytes = self.num_tokens = 0
        self._roots = dict[Steady | None, _Node]()
        self._unsaved = deque[tuple[tuple[int, ...], Steady | None]](maxlen=_MOST_UNSAVED)

    def find(
        self, tokens: Sequence[int], steady: Steady | None = None, *, beyond: int = 0
    ) -> Prefix:
        """Return the longest prefix of a text whose rows, of such forwards, are stored.

        One of up to `beyond` tokens is of no use, so no file is read for it.
        """
        own = self._find(tokens, steady)
        if self._files is None or own.length == len(tokens):
            return own
        below = Prefix(*self._files.find(tokens, steady, max(beyond, own.length)))
        return below if below.length > own.length else own

    def save(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Write the texts stored since the last call into the files, the newest first."""
        saved = list[tuple[int, ...]]()
        while self._files is not None and self._unsaved and not should_stop():
            tokens, steady = self._unsaved.pop()
            known = self._find(tokens, steady)
            if all(text[: len(tokens)] != tokens for text in saved):
                self._files.add(tokens[: known.length], known.rows, steady, should_stop=should_stop)
                saved.append(tokens)

    def _find(self, tokens: Sequence[int], steady: Steady | None) -> Prefix:
        parts, length = list[Planes](), 0
        for node, shared in self._walk(tokens, steady):
            parts.append([plane[:, :, :shared] for plane in node.planes])
            length += shared
        # Includes room that the next row needs anyway, so that the rows are copied only once.
        joined = [
            mx.concatenate([*own, blank_rows(own[0], 1, GROWTH)], axis=2)
            for own in zip(*parts, strict=True)
        ]
        return Prefix(length, joined)

    def add(
        self,
        tokens: Sequence[int],
        rows: Callable[[int, int], Planes],
        steady: Steady | None = None,
    ) -> None:
        """Store rows of a text that are not stored yet; `rows(a, b)` returns those from a to b.

        Those of steady forwards are whole chunks.
        """
        if not self.max_bytes:
            return
        if self._files is not None:
            self._unsaved.append((tuple(tokens), steady))
        last, length = self._root(steady), 0
        for node, shared in self._walk(tokens, steady):
            last, length = node, length + shared
            if shared < len(node.tokens):
                last = self._split(node, shared)
        if length < len(tokens):
            # Gathered, because a slice keeps the whole buffer.
            own = mx.arange(len(tokens) - length)
            planes = [mx.take(plane, own, axis=2) for plane in rows(length, len(tokens))]
            mx.eval(planes)
            new = _Node(list(tokens[length:]), planes, last.unit, last, used_at=self._now)
            last.below[new.first] = new
            self.nbytes += new.nbytes
            self.num_tokens += len(new.tokens)
        self._shrink()

    def _root(self, steady: Steady | None) -> _Node:
        return self._roots.setdefault(steady, _Node([], [], 1 if steady is None else CHUNK))

    def _walk(self, tokens: Sequence[int], steady: Steady | None) -> Iterator[tuple[_Node, int]]:
        """Yield the nodes along a text, and how many tokens of each match the text."""
        self._now += 1
        node, at = self._root(steady), 0
        unit = node.unit
        while at < len(tokens) and (below := node.below.get(tuple(tokens[at : at + unit]))):
            shared = common_length(below.tokens, tokens[at : at + len(below.tokens)])
            shared -= shared % unit
            below.used_at = self._now
            yield below, shared
            if shared < len(below.tokens):
                return
            node, at = below, at + shared

    def _split(self, node: _Node, length: int) -> _Node:
        """Split a node in two; return the first one."""
        assert node.above is not None, "the root has no tokens to cut"
        first = _Node(
            node.tokens[:length],
            [mx.take(plane, mx.arange(length), axis=2) for plane in node.planes],
            node.unit,
            node.above,
            used_at=node.used_at,
        )
        rest = mx.arange(length, len(node.tokens))
        node.planes = [mx.take(plane, rest, axis=2) for plane in node.planes]
        mx.eval(first.planes, node.planes)
        node.tokens, node.above = node.tokens[length:], first
        assert first.above is not None
        first.above.below[first.first] = first
        first.below[node.first] = node
        return first

    def _shrink(self) -> None:
        while self.nbytes > self.max_bytes or self.num_tokens > self.max_tokens:
            oldest = min(self._leaves(), key=lambda leaf: leaf.used_at)
            assert oldest.above is not None, "a root has no rows to drop"
            del oldest.above.below[oldest.first]
            self.nbytes -= oldest.nbytes
            self.num_tokens -= len(oldest.tokens)

    def _leaves(self) -> Iterator[_Node]:
        waiting = [node for root in self._roots.values() for node in root.below.values()]
        while waiting:
            node = waiting.pop()
            waiting += node.below.values()
            if not node.below:
                yield node
