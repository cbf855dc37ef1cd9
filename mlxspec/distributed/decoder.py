"""The decoder of rank 0: it works like any decoder, and orders the other ranks to do the same.

Each method sends its order and then runs as usual, so all caches hold the same rows. Only this rank
sees logits, draws numbers and decides. Engine, drafters and budget need no changes.
"""

import signal
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import mlx.core as mx

from mlxspec.decoder.decoder import Decoder
from mlxspec.decoder.hidden import HiddenStateReader
from mlxspec.device.backend import values
from mlxspec.device.turns import device_turn
from mlxspec.distributed.link import Link
from mlxspec.distributed.model import ShardedModel
from mlxspec.distributed.orders import Kind, Order
from mlxspec.drafts.tree import DraftTree
from mlxspec.errors import RankLostError, UnsupportedOperationError
from mlxspec.kv.cache import Cache


class ShardedDecoder(Decoder):
    """A decoder whose model is on several ranks; methods as in `Decoder`.

    A forward is computed when its method returns: the other ranks would wait for an array that is
    left lazy here.
    """

    def __init__(self, model: ShardedModel, cache: Cache, link: Link) -> None:
        """Open an empty cache on every rank.

        `model` is the part of rank 0. The other ranks make a cache with the settings of `cache`.
        """
        super().__init__(model, cache)
        self._sharded = model
        self._link = link
        self._number = next(link.numbers)
        self._is_told = False
        self._forwards.wait = link.wait
        link.later(Order(Kind.OPEN, self._number))
        weakref.finalize(self, _close, link, self._number).atexit = False

    def apart(self) -> Decoder:
        return ShardedDecoder(self._sharded, self.cache.empty_like(), self._link)

    @property
    def can_adopt(self) -> bool:
        """Whether `adopt` is possible: no, this rank has some of the rows only."""
        return False

    def adopt(
        self, tokens: Sequence[int], cache: Cache, readers: Sequence[HiddenStateReader] = ()
    ) -> None:
        """Raise UnsupportedOperationError: the other ranks do not have these rows."""
        raise UnsupportedOperationError(
            "rows of a text cannot be taken over where the model stands on several ranks: each "
            "rank has its own part of them; observe the tokens instead"
        )

    def attach(self, readers: Sequence[HiddenStateReader]) -> None:
        """Replace the readers; none may need states of another rank (UnsupportedOperationError)."""
        if any(reader.capture for reader in readers):
            self._sharded.check_capture()
        super().attach(readers)

    def reset(self) -> None:
        super().reset()
        self._tell(Kind.RESET)

    def observe(self, tokens: Sequence[int]) -> None:
        self._check_tokens(tokens)
        with self._told(Kind.OBSERVE, tokens):
            super().observe(tokens)

    def rollback_to(self, length: int) -> None:
        is_forward = self._is_torn or self.cache.nearest(length) != length
        if is_forward and 0 <= length <= len(self):  # tokens are read again
            with self._told(Kind.ROLLBACK, (length,)):
                super().rollback_to(length)
            return
        with device_turn():
            super().rollback_to(length)
        self._tell(Kind.ROLLBACK, (length,))

    def forward_tree(self, tree: DraftTree) -> mx.array:
        """Stage a tree; see `Decoder.forward_tree`. Its states are computed, not lazy."""
        with self._told(Kind.TREE, _numbers_of(tree)):
            states = super().forward_tree(_computed(tree))
            self._wait_for_staged(states)
        return states

    def tree_logits(self, tree: DraftTree) -> mx.array:
        with self._told(Kind.LOGITS_OF_TREE, _numbers_of(tree)):
            return super().tree_logits(_computed(tree))

    def extend_lower(self, token: int, layer: int) -> mx.array:
        self._sharded.check_parts()
        with self._told(Kind.LOWER, (token, layer)):
            states = super().extend_lower(token, layer)
            self._wait_for_staged(states)
        return states

    def extend_chain(self, tokens: mx.array) -> mx.array:
        with self._told(Kind.CHAIN, values(tokens)):
            states = super().extend_chain(mx.array(values(tokens), mx.int32))
            self._wait_for_staged(states)
        return states

    def commit(self, path: Sequence[int]) -> None:
        with device_turn():
            super().commit(path)
        if path or not self._link.reason:  # after a loss, a reply commits nothing
            self._tell(Kind.COMMIT, path)

    def commit_chain(self, tokens: Sequence[int]) -> None:
        with device_turn():
            super().commit_chain(tokens)
        self._tell(Kind.COMMIT_CHAIN, tokens)

    def last_hidden_state(self) -> mx.array:
        if self._last_hidden is not None or not self._history:
            return super().last_hidden_state()
        with self._told(Kind.LAST, ()):
            return super().last_hidden_state()

    def _tell(self, kind: Kind, numbers: Sequence[int] = ()) -> None:
        """Send an order that needs no forward, together with the next one that does.

        It is sent after this rank has done it, so that a refused call sends no order.
        """
        if not self._is_told:
            self._link.later(Order(kind, self._number, tuple(numbers)))

    @contextmanager
    def _told(self, kind: Kind, numbers: Sequence[int]) -> Iterator[None]:
        """Send an order and allow the forwards of this rank; nested orders belong to the outer one.

        If this rank fails after the others received the order, the ranks are out of step: the link
        ends.
        """
        if self._is_told:
            yield
            return
        self._is_told = True
        try:
            # In shared streams, because another thread waits for arrays that are lazy here.
            with _no_interrupt(self._link), self._sharded.told(), device_turn():
                self._link.now(Order(kind, self._number, tuple(numbers)))
                yield
        except RankLostError:
            raise
        except Exception as error:
            self._link.lose(f"rank 0: {type(error).__name__}: {error}")
            raise
        finally:
            self._is_told = False

    def _wait_for_staged(self, states: mx.array) -> None:
        staged = self._forwards.staged
        entering = list(staged[1].entering.values()) if isinstance(staged, tuple) else []
        self._forwards.wait(states, *entering)


def _computed(tree: DraftTree) -> DraftTree:
    arrays = mx.array(values(tree.tokens), mx.int32), mx.array(values(tree.parents), mx.int32)
    return DraftTree(*arrays, tree.max_depth)


def _numbers_of(tree: DraftTree) -> list[int]:
    tokens: list[int] = values(tree.tokens)
    parents: list[int] = values(tree.parents)
    return [*tokens, *parents]


def _close(link: Link, number: int) -> None:
    """Order the other ranks to free a decoder's cache; they do so with the next forward."""
    if not link.reason:
        link.later(Order(Kind.CLOSE, number))


@contextmanager
def _no_interrupt(link: Link) -> Iterator[None]:
    """Delay Ctrl+C until all ranks are in step; a second one ends the link.

    Only the main thread receives it, so other threads need nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    before: Any = signal.getsignal(signal.SIGINT)

    def remember(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        if len(pressed) > 1:
            link.lose("rank 0: interrupted twice while it waited for the others")

    if before is None:  # not set by Python: left as it is
        yield
        return
    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if pressed and callable(before):
            before(pressed[0], None)
