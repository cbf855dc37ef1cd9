"""Writes one reply with a decoder of its own: the prompt in chunks, then one round at a time.

Everything up to the verdict of a round is lazy; only `take` waits for the device. A round that is
certain to be plain is launched before the host has the tokens of the previous round.
"""

import time
from dataclasses import dataclass, replace
from functools import partial

from mlxspec.budget import Budget
from mlxspec.budget.cost import quick_costs
from mlxspec.decoder.decoder import NO_LIMIT, PREFILL_CHUNK, Decoder
from mlxspec.drafters.base import Drafter, fresh_drafter
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.drafts.tree import DraftTree
from mlxspec.kv.prefixes import PrefixCache
from mlxspec.loading.exactness import exact_form
from mlxspec.reply.pending import CertainRound, DeviceRound, PendingRound, ending_draft
from mlxspec.reply.reply import Reply
from mlxspec.reply.round import write_round
from mlxspec.trace.difference import common_length

_SHORT_REPLY = 16  # tokens; measuring the cost of a forward would take longer
_SHORT_TEXT = 256  # tokens; those of a longer one are counted while they are read
_FIRST_CHUNK = 64  # tokens of a long text: the count moves soon, and a stop takes effect soon


@dataclass(frozen=True, eq=False)
class Workspace:
    """What a reply borrows: the decoder of its text, its drafter, and its budget."""

    decoder: Decoder
    drafter: Drafter
    budget: Budget

    def like(self, decoder: Decoder) -> "Workspace":
        """Return one for another text; ValueError if the drafter cannot be copied."""
        return Workspace(decoder, fresh_drafter(self.drafter, decoder), self.budget.fresh())


class ReplyWriter:
    """Reads the prompt of one reply, and writes its rounds; a `Writer`."""

    def __init__(
        self,
        reply: Reply,
        workspace: Workspace,
        prefixes: PrefixCache,
        *,
        is_alone: bool = False,
        is_moved: bool = False,
    ) -> None:
        """Take a workspace; cache rows of a prefix of the text are reused.

        `prefixes` stores rows of prefixes, too. `is_alone` reads a long text in small steps at
        first, which no other reply waits for. Set `is_moved` if another reply has taken a decoder
        away from this one, as it may do again between two steps.
        """
        self.ahead: PendingRound | None = None
        self.most_nodes = NO_LIMIT  # draft nodes in a round
        self.decoder = workspace.decoder
        self._reply, self._budget = reply, workspace.budget
        self._prefixes, self._is_moved = prefixes, is_moved
        self._is_begun = False  # whether drafter and budget are started
        self._num_allowed = 0  # draft nodes that the budget allows in this round
        self._next_allowed: int | None = None  # the same for the next round, if already decided
        self._begun_at = self._drafted_at = 0.0  # perf_counter seconds in this round
        self._num_reused = self._reuse()
        self._revision = self.decoder.revision
        num_unread = len(reply.continuation.tokens) - 1 - len(self.decoder)
        self.is_announced = num_unread > _SHORT_TEXT and is_alone and not is_moved
        if self.is_announced:
            reply.has_read(len(self.decoder), self._num_reused)
        elif not self.is_reading:
            self._has_read()

    def _reuse(self) -> int:
        """Roll the decoder back to a prefix of the text; return the length of that."""
        decoder, job = self.decoder, self._reply.job
        tokens, readers = self._reply.continuation.tokens[:-1], self._reply.guard.active.readers
        self.leave()  # otherwise the rows that another reply left staged would be committed
        decoder.be_exact(exact_form(decoder) if job.params.exact else None)
        decoder.attach(readers)
        if job.params.exact:  # a later prompt may hold this reply, read to other bits
            tokens = tokens[: len(job.prompt) - 1]
        reused = decoder.reusable(common_length(decoder.history, tokens))
        # Hidden states are not stored, so a drafter that needs them reads the whole prompt.
        if not readers and reused < len(tokens):
            prefix = self._prefixes.find(tokens, decoder.cache.steady, beyond=reused)
            if prefix.length > reused:
                reused = prefix.length
                cache = decoder.cache.filled(reused, prefix.planes)
                decoder.adopt(tokens[:reused], cache, num_read=reused)
        decoder.rollback_to(reused)
        return reused

    @property
    def is_intact(self) -> bool:
        """Whether the decoder is still as the last step left it."""
        return self.decoder.revision == self._revision

    @property
    def is_reading(self) -> bool:
        """Whether a part of the text has no rows yet."""
        return len(self.decoder) < len(self._reply.continuation.tokens) - 1

    @property
    def _room(self) -> int:
        return self._reply.room(len(self.decoder))

    # ---- a step ----------------------------------------------------------------------------

    def read(self, most: int = PREFILL_CHUNK) -> int:
        """Read up to `most` more tokens, or all if the text has moved; return how many.

        The last token is not read: it is the next root. At the end the rows are stored as a prefix.
        """
        before = len(self.decoder)
        while self.is_reading:
            self._read_chunk(most)
            self._has_read()
            if not self._is_moved:  # otherwise another reply could undo it after every chunk
                break
        if not self.is_reading:
            self.store()
        self._revision = self.decoder.revision
        return len(self.decoder) - before

    def _read_chunk(self, most: int) -> None:
        decoder, job = self.decoder, self._reply.job
        done, tokens = len(decoder), self._reply.continuation.tokens
        if decoder.form is None:
            step = min(decoder.chunk_length, job.params.prefill_step_size or most, most)
            if self.is_announced:
                step = min(step, max(_FIRST_CHUNK, done - self._num_reused))
            decoder.observe(tokens[done:-1][:step])
        elif done < len(job.prompt) - 1:  # a whole chunk: what other replies read must not cut it
            decoder.observe(tokens[done : len(job.prompt) - 1][: decoder.chunk_length])
        else:
            decoder.write(tokens[done:-1])

    def _has_read(self) -> None:
        self._reply.has_read(len(self.decoder) + 1, self._num_reused)
        self._reply.end_if_full(len(self.decoder))

    def write(self) -> None:
        """Write a round, after reading the text if it has moved.

        Events are reported after the commit, so an interrupt leaves a cache from which the next
        reply continues correctly.
        """
        if self.is_reading:
            self.read()
        if self._reply.is_over:  # the context is full
            return
        if not self._is_begun:
            self._begin()
        write_round(self)
        self._reply.end_if_full(len(self.decoder))
        if self._reply.is_over:
            self._budget.end()
        self._revision = self.decoder.revision

    def _begin(self) -> None:
        """Start drafter and budget."""
        reply, params = self._reply, self._reply.job.params
        reply.start_drafter()
        measure = partial(quick_costs, self.decoder, params.num_draft_tokens + 1)
        self._budget.fit = self.decoder.fit
        is_worth_it = not reply.guard.is_plain and params.max_tokens >= _SHORT_REPLY
        self._budget.begin(
            reply.guard.active.name,
            params.sampling.temperature,
            len(self.decoder),
            measure if is_worth_it and params.num_draft_tokens else None,
        )
        self._is_begun = True

    def store(self) -> None:
        """Store the rows of the text, so that a prompt with this prefix need not compute them."""
        decoder = self.decoder
        tokens = decoder.history[: decoder.num_lasting]
        self._prefixes.add(tokens, decoder.cache.rows, decoder.cache.steady)

    def leave(self) -> None:
        """Drop a launched or interrupted round: roll the staged rows back."""
        self.decoder.commit([])

    # ---- the parts of a round, in their order; see `write_round` ---------------------------

    def propose(self) -> Draft:
        self._begun_at = time.perf_counter()
        draft = self._propose()
        if self._reply.guard.faults:  # the readers of a drafter that failed would fail too
            self.decoder.attach(())
        self._drafted_at = time.perf_counter()
        return draft

    def _propose(self) -> Draft:
        continuation, guard = self._reply.continuation, self._reply.guard
        self._num_allowed = self._ask() if self._next_allowed is None else self._next_allowed
        self._next_allowed = None
        if run := continuation.ending(self._room):
            return ending_draft(continuation.root, run)
        most = self._limit()
        self._num_allowed = min(most, self._num_allowed + guard.num_certain(most))
        draft = guard.propose(continuation.root, self._num_allowed)
        return self._budget.cut(draft) if self._num_allowed else draft

    def verify(self, drafts: Draft, num_pending: int = 0) -> PendingRound:
        """Verify a draft with one forward over all of its nodes; all is lazy.

        A draft with which the reply certainly ends needs no forward. `num_pending` counts the
        tokens of an earlier round that the host does not have yet.
        """
        if drafts.ends_reply:
            return CertainRound(drafts)
        decoder, n_nodes = self.decoder, drafts.tree.n_nodes
        safe = replace(drafts, tree=drafts.tree.bounded(decoder.vocab_size))
        rows = self._rows(n_nodes)
        tree = safe.tree.lengthened(rows) if decoder.fit else safe.tree.padded(rows)
        logits = decoder.logits(decoder.forward_tree(tree))[:n_nodes]
        num_top_tokens = self._reply.guard.active.num_top_tokens
        return self._reply.continuation.verify(drafts, logits, num_top_tokens, safe, num_pending)

    def look_ahead(self, pending: PendingRound) -> None:
        """Launch the next round if it is certain to follow and to be plain.

        A plain round commits only its root, so the next position is certain before the host has the
        token. Penalties and functions of the text need that token first, so they exclude this.
        """
        continuation, self.ahead = self._reply.continuation, None
        is_plain = pending.draft.tree.n_nodes == 1 and continuation.may_look_ahead
        if not (self._budget.looks_ahead and is_plain and continuation.goes_on(self._room)):
            return
        assert isinstance(pending, DeviceRound), "the host has no token before it has waited"
        self._next_allowed = self._ask(num_pending=1)
        if self._next_allowed:
            return
        pending.launch()
        self.decoder.commit([0])
        root = pending.verdict.bonus_token[None]
        self.ahead = self.verify(Draft(DraftTree.chain(root)), num_pending=1)
        self.ahead.launch()

    def take(self, pending: PendingRound) -> Round:
        """Wait for the device, and emit the tokens of the round."""
        read, reply = pending.wait(), self._reply  # a lazy draft can be checked only now
        root = reply.continuation.root
        reply.guard.check_nodes(pending.draft, read.tokens, read.parents, root)
        return reply.continuation.emit(read, pending.distributions)

    def commit(self, rounds: Round) -> None:
        if self.ahead is None and rounds.forwards:
            self.decoder.commit(rounds.path)

    def update(self, rounds: Round) -> None:
        if rounds.forwards:
            self._reply.guard.update(rounds)
        ended_at = time.perf_counter()
        took = replace(
            rounds,
            num_allowed=self._num_allowed,
            num_rows=self._rows(len(rounds.tokens)) * rounds.forwards,
            draft_ms=(self._drafted_at - self._begun_at) * 1e3,
            target_ms=(ended_at - self._drafted_at) * 1e3,
            ended_s=self._reply.continuation.seconds(),
            context=len(self.decoder),
        )
        if rounds.forwards:
            self._budget.learn(took)
        self._reply.has_written(took)

    # ---- how many nodes --------------------------------------------------------------------

    def _ask(self, num_pending: int = 0) -> int:
        limit = self._limit(num_pending)
        return 0 if self._reply.guard.is_plain else self._budget.ask(limit)

    def _limit(self, num_pending: int = 0) -> int:
        limit = self._reply.continuation.draft_budget(self._room, num_pending)
        return min(limit, max(0, self.decoder.most_nodes - num_pending), self.most_nodes)

    def _rows(self, n_nodes: int) -> int:
        """Return the rows of the forward; rows that widen it would turn a chain into a tree."""
        if self.decoder.fit:
            return self.decoder.fit(n_nodes)
        return self._budget.rows(n_nodes) if self.decoder.draft_support == "tree" else n_nodes
