"""Writes the replies of a batch together: one forward of the target, and one wait, for all."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import accumulate

import mlx.core as mx

from mlxspec.batch.decoder import BatchDecoder
from mlxspec.batch.width import WidthChoice
from mlxspec.budget import CostCurve
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.kv.prefix_files import Planes
from mlxspec.reply.pending import PendingRound, wait_all
from mlxspec.reply.reply import Reply


class BatchWriter:
    """Writes the rounds of replies that share a forward; a `Writer`.

    Drafts and rounds are lists with one for each reply. A reply that fails on the way has no
    pending round and no round: it commits nothing, and the others continue. No round is launched
    before the host has the tokens of the previous one.
    """

    ahead: list[PendingRound | None] | None = None
    most_nodes = 0  # draft nodes of each reply in a round

    def __init__(self, reader: Decoder, costs: CostCurve | None) -> None:
        """Start without replies; `reader` reads the prompts, one after the other."""
        self._reader = reader
        self._decoder = BatchDecoder(reader.model, reader.cache, 0)
        self._width = WidthChoice(costs)
        self._slots: list[Reply | None] = []  # None: free until the next reply or round
        self._num_allowed: list[int] = []
        self._begun_at = self._drafted_at = 0.0  # perf_counter seconds in this round
        self._num_rows = 0

    # ---- slots -----------------------------------------------------------------------------

    @property
    def replies(self) -> list[Reply]:
        """The replies, ordered by slot."""
        return [reply for reply in self._slots if reply is not None]

    def add(self, reply: Reply, decoder: Decoder) -> None:
        """Copy a reply whose text a decoder has read into a free slot, or into a new one."""
        if None not in self._slots:
            self._slots.append(None)
            self._decoder.grow(1)
        slot = self._slots.index(None)
        self._slots[slot] = reply
        self._decoder.join(slot, decoder.cache, reply.guard.active.readers)
        reply.attempt(reply.start_drafter)

    def move_to_reader(self, reply: Reply) -> None:
        """Move the only reply to the reader, which then has its text."""
        slot = self._slots.index(reply)
        cache = self._decoder.cache.take(slot, self._reader.cache)
        tokens = reply.continuation.tokens[:-1]
        self._reader.adopt(tokens, cache, reply.guard.active.readers)
        self.remove(reply)
        self.shrink()

    def rows_of(self, reply: Reply) -> tuple[list[int], Callable[[int, int], Planes]]:
        """Return the tokens of a reply that have rows, and what returns some of these rows."""
        slot = self._slots.index(reply)
        tokens = reply.continuation.tokens[: self._decoder.cache.offsets[slot]]
        return tokens, partial(self._decoder.cache.rows, slot)

    def remove(self, reply: Reply) -> None:
        """Free the slot of a reply."""
        self._slots[self._slots.index(reply)] = None

    def shrink(self) -> None:
        """Remove the free slots."""
        kept = [slot for slot, reply in enumerate(self._slots) if reply is not None]
        if len(kept) < len(self._slots):
            self._decoder.keep(kept)
            self._slots = [self._slots[slot] for slot in kept]

    # ---- the parts of a round, in their order; see `write_round` ---------------------------

    def propose(self) -> list[Draft]:
        self.shrink()
        self._begun_at = time.perf_counter()
        self._num_allowed = [
            min(
                self.most_nodes,
                reply.continuation.draft_budget(reply.room(self._decoder.cache.offsets[slot])),
            )
            for slot, reply in enumerate(self.replies)
        ]
        drafts = [
            reply.attempt(partial(self._draft, reply, count))
            or Draft.empty(reply.continuation.root)
            for reply, count in zip(self.replies, self._num_allowed, strict=True)
        ]
        for slot, reply in enumerate(self.replies):
            if reply.guard.faults:  # the readers of a drafter that failed would fail too
                self._decoder.detach(slot)
        cut = self._width.cut(drafts)
        self._drafted_at = time.perf_counter()
        return cut

    def _draft(self, reply: Reply, most: int) -> Draft:
        """Return a draft of at most `most` nodes, without the root."""
        root, guard = reply.continuation.root, reply.guard
        draft = guard.propose(root, guard.num_certain(most) if guard.is_plain else most)
        guard.check_nodes(draft, *draft.tree.lists(), root)
        return draft

    def verify(self, drafts: list[Draft]) -> list[PendingRound | None]:
        trees = [draft.tree for draft in drafts]
        self._num_rows = len(trees) * max(tree.n_nodes for tree in trees)
        hidden = self._decoder.forward_trees(trees)
        ends = list(accumulate(tree.n_nodes for tree in trees))
        logits = mx.split(self._reader.logits(hidden), ends[:-1])
        return [
            reply.attempt(
                partial(reply.continuation.verify, draft, rows, reply.guard.active.num_top_tokens)
            )
            for reply, draft, rows in zip(self.replies, drafts, logits, strict=True)
        ]

    def look_ahead(self, pending: list[PendingRound | None]) -> None:
        pass

    def take(self, pending: list[PendingRound | None]) -> list[Round | None]:
        wait_all([one for one in pending if one is not None])
        return [
            None if one is None else reply.attempt(partial(_emit, reply, one))
            for reply, one in zip(self.replies, pending, strict=True)
        ]

    def commit(self, rounds: list[Round | None]) -> None:
        self._decoder.commit([round.path if round else () for round in rounds])

    def update(self, rounds: list[Round | None]) -> None:
        target_ms = (time.perf_counter() - self._drafted_at) * 1e3
        self._width.learn(rounds, self._num_rows, target_ms)
        for slot, (reply, round) in enumerate(zip(self.replies, rounds, strict=True)):
            if round is None:
                continue
            took = replace(
                round,
                num_allowed=max(self._num_allowed),
                num_rows=self._num_rows,
                draft_ms=(self._drafted_at - self._begun_at) * 1e3,
                target_ms=target_ms,
                context=self._decoder.cache.offsets[slot],
            )
            reply.attempt(partial(_update, reply, took))
            reply.end_if_full(took.context)


def _emit(reply: Reply, pending: PendingRound) -> Round:
    return reply.continuation.emit(pending.read(), pending.distributions)


def _update(reply: Reply, round: Round) -> None:
    reply.guard.update(round)
    reply.has_written(replace(round, ended_s=reply.continuation.seconds()))
