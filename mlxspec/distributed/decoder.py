"""The decoder of rank 0: it does what any decoder does, and tells the other ranks to do the same.

Each method sends its order and then runs as usual, so all caches hold the same rows. No rank but
this one sees a logit, draws a number or decides. Engine, drafters and budget notice nothing.
"""

import signal
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import mlx.core as mx

from mlxspec.device.backend import values
from mlxspec.device.turns import device_turn
from mlxspec.distributed.link import Link
from mlxspec.distributed.model import ShardedModel
from mlxspec.distributed.orders import Kind, Order
from mlxspec.drafts.tree import DraftTree
from mlxspec.errors import RankLostError, UnsupportedOperationError
from mlxspec.kv.cache import Cache
from mlxspec.target.decoder import Decoder
from mlxspec.target.hidden import HiddenStateReader


class ShardedDecoder(Decoder):
    """A decoder whose model stands on several ranks; methods as in `Decoder`.

    A forward is computed when its method returns: what a rank alone left lazy, the others would
    wait for.
    """

    def __init__(self, model: ShardedModel, cache: Cache, link: Link) -> None:
        """Begin with an empty cache on every rank.

        Args:
            model: The part of rank 0.
            cache: The cache of rank 0; the others make theirs of the same settings.
            link: The other ranks.
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
        """Return a decoder of the same model with an empty cache, on all ranks."""
        return ShardedDecoder(self._sharded, self.cache.empty_like(), self._link)

    @property
    def can_adopt(self) -> bool:
        """Whether `adopt` is possible: no, this rank has some of the rows only."""
        return False

    def adopt(
        self, tokens: Sequence[int], cache: Cache, readers: Sequence[HiddenStateReader] = ()
    ) -> None:
        """Refuse rows that the other ranks were not told of.

        Raises:
            UnsupportedOperationError: Always.
        """
        raise UnsupportedOperationError(
            "rows of a text cannot be taken over where the model stands on several ranks: each "
            "rank has its own part of them; observe the tokens instead"
        )

    def attach(self, readers: Sequence[HiddenStateReader]) -> None:
        """Replace the readers of hidden states; see `Decoder.attach`.

        Raises:
            UnsupportedOperationError: A reader needs states that are on another rank.
        """
        if any(reader.capture for reader in readers):
            self._sharded.check_capture()
        super().attach(readers)

    def reset(self) -> None:
        """Forget the history on all ranks."""
        super().reset()
        self._tell(Kind.RESET)

    def observe(self, tokens: Sequence[int]) -> None:
        """Append tokens to the history; see `Decoder.observe`."""
        self._check_tokens(tokens)
        with self._told(Kind.OBSERVE, tokens):
            super().observe(tokens)

    def rollback_to(self, length: int) -> None:
        """Keep the first `length` tokens of the history; see `Decoder.rollback_to`."""
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
        """Return the logits of a tree; see `Decoder.tree_logits`."""
        with self._told(Kind.LOGITS_OF_TREE, _numbers_of(tree)):
            return super().tree_logits(_computed(tree))

    def extend_lower(self, token: int, layer: int) -> mx.array:
        """Stage a token in the lower layers; see `Decoder.extend_lower`."""
        self._sharded.check_parts()
        with self._told(Kind.LOWER, (token, layer)):
            states = super().extend_lower(token, layer)
            self._wait_for_staged(states)
        return states

    def extend_chain(self, tokens: mx.array) -> mx.array:
        """Stage a chain; see `Decoder.extend_chain`."""
        with self._told(Kind.CHAIN, values(tokens)):
            states = super().extend_chain(mx.array(values(tokens), mx.int32))
            self._wait_for_staged(states)
        return states

    def commit(self, path: Sequence[int]) -> None:
        """Commit the staged nodes on `path`; see `Decoder.commit`."""
        with device_turn():
            super().commit(path)
        if path or not self._link.reason:  # a reply that is left after a loss commits nothing
            self._tell(Kind.COMMIT, path)

    def commit_chain(self, tokens: Sequence[int]) -> None:
        """Commit the first rows of a staged chain; see `Decoder.commit_chain`."""
        with device_turn():
            super().commit_chain(tokens)
        self._tell(Kind.COMMIT_CHAIN, tokens)

    def last_hidden_state(self) -> mx.array:
        """Return the final-norm output at the last token; see `Decoder.last_hidden_state`."""
        if self._last_hidden is not None or not self._history:
            return super().last_hidden_state()
        with self._told(Kind.LAST, ()):
            return super().last_hidden_state()

    def _tell(self, kind: Kind, numbers: Sequence[int] = ()) -> None:
        """Send an order that needs no forward, together with the next one that does.

        It is sent after this rank has done it: what is refused here is no order.
        """
        if not self._is_told:
            self._link.later(Order(kind, self._number, tuple(numbers)))

    @contextmanager
    def _told(self, kind: Kind, numbers: Sequence[int]) -> Iterator[None]:
        """Send an order and allow the forwards of this rank; an order within it is part of it.

        Where this rank fails after the others were told, they are no longer in step: the link ends.
        """
        if self._is_told:
            yield
            return
        self._is_told = True
        try:
            # In shared streams: another thread waits for what is lazy here.
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
    """Return a tree of which nothing is lazy."""
    arrays = mx.array(values(tree.tokens), mx.int32), mx.array(values(tree.parents), mx.int32)
    return DraftTree(*arrays, tree.max_depth)


def _numbers_of(tree: DraftTree) -> list[int]:
    tokens: list[int] = values(tree.tokens)
    parents: list[int] = values(tree.parents)
    return [*tokens, *parents]


def _close(link: Link, number: int) -> None:
    """Tell the others that a decoder is gone; they free its cache with the next forward."""
    if not link.reason:
        link.later(Order(Kind.CLOSE, number))


@contextmanager
def _no_interrupt(link: Link) -> Iterator[None]:
    """Let Ctrl+C wait until all ranks are in step; the second one ends the link instead.

    Only the main thread gets it, so other threads need nothing.
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
