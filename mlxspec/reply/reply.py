"""One reply while it is written: the prompt in chunks, then one round at a time.

Everything up to the verdict of a round is lazy; only `Reply.take` waits for the device. A round
that is certain to be plain is launched before the host has the tokens of the previous round.

A reply stores all of its tokens, so other replies may change its target between two steps. Then it
takes the target again: it prefills the tokens that the cache lacks, and restarts its drafter. Its
text stays the same, because the random numbers of a token depend only on its position.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from mlxspec.budget import Budget
from mlxspec.budget.cost import quick_costs
from mlxspec.decoder.decoder import PREFILL_CHUNK, Decoder
from mlxspec.drafters.base import Drafter
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.drafts.tree import DraftTree
from mlxspec.errors import NumericsError
from mlxspec.params import GenerationParams
from mlxspec.reply.certain_round import CertainRound, ending_draft
from mlxspec.reply.continuation import Continuation
from mlxspec.reply.drafter_guard import Guard
from mlxspec.reply.events import round_events
from mlxspec.reply.pending_round import PendingRound
from mlxspec.reply.waited_round import WaitedRound
from mlxspec.trace.difference import common_length
from mlxspec.trace.events import (
    DrafterFailed,
    Event,
    GenerationFinished,
    PrefillProgress,
    TokensKept,
)

_SHORT_REPLY = 16  # tokens; measuring the cost of a forward would take longer


class Reply:
    """Writes one reply, step by step; between two steps other replies may use its target.

    Attributes:
        drafter: The drafter that the caller chose.
        budget: The budget that the caller chose.
        ahead: The next round, if it is already launched.
        is_over: Whether the event of its end was returned.
    """

    def __init__(
        self,
        continuation: Continuation,
        drafter: Drafter,
        budget: Budget,
        token_bytes: Callable[[int], bytes],
        context_length: int | None,
    ) -> None:
        """Prepare a reply; nothing is computed yet.

        `token_bytes` returns the UTF-8 bytes of a token. `context_length` bounds the tokens of
        prompt and reply; None for no limit.
        """
        self.drafter = drafter
        self.budget = budget
        self.ahead: WaitedRound | None = None
        self.is_over = False
        self._continuation = continuation
        self._token_bytes = token_bytes
        self._context_length = context_length
        self._target: Decoder | None = None  # the one of the last `sit`
        self._revision = 0  # of the target after the last step; another value means another text
        self._num_reused = 0  # prompt tokens whose rows were already in the cache
        self._has_read_prompt = False
        self._was_moved = False  # to another target, or back to one that other replies have used
        self._is_drafting = False  # whether the drafter was started since the last `sit`
        self._num_allowed = 0  # draft nodes that the budget allows in this round
        self._next_allowed: int | None = None  # the same for the next round, if already decided
        self._begun_at = self._drafted_at = 0.0  # perf_counter seconds in this round

    @property
    def params(self) -> GenerationParams:
        """Settings of the reply."""
        return self._continuation.params

    # ---- its target ------------------------------------------------------------------------

    @property
    def has_sat(self) -> bool:
        """Whether it ever had a target."""
        return self._target is not None

    @property
    def is_seated(self) -> bool:
        """Whether the target's cache is still as the last step left it."""
        return self._target is not None and self._target.revision == self._revision

    @property
    def target(self) -> Decoder:
        """The target of the last `sit`."""
        assert self._target is not None, "a reply gets a target before its first step"
        return self._target

    def sit(self, target: Decoder, drafter: Drafter, budget: Budget) -> None:
        """Use these from now on; cache rows of a prefix of this text are reused."""
        self._was_moved = self.has_sat
        self._target, self._budget = target, budget
        # Hidden-state readers of a drafter that failed would fail too, so they are detached.
        self._guard = Guard(
            drafter, target.vocab_size, partial(target.attach, ()), target.draft_support
        )
        self._is_drafting, self._next_allowed = False, None
        self.leave()  # otherwise the rows that another reply left staged would be committed
        target.attach(self._guard.active.readers)
        reused = target.reusable(common_length(target.history, self._continuation.tokens[:-1]))
        target.rollback_to(reused)
        if not self._has_read_prompt:  # later, the rows of this reply itself would count
            self._num_reused = reused
        self._revision = target.revision

    def leave(self) -> None:
        """Drop a launched or interrupted round: roll the staged rows back."""
        self.ahead = None
        if self._target is not None:
            self._target.commit([])

    # ---- a step ----------------------------------------------------------------------------

    def step(
        self, write_round: Callable[["Reply"], Round], *, is_cancelled: bool = False
    ) -> list[Event]:
        """Prefill a chunk of the prompt or write a round; return the events.

        Call it only while the reply is seated and not over. Events are returned after the commit,
        so an interrupt leaves a cache from which the next reply continues correctly. `is_cancelled`
        ends the reply instead.
        """
        try:
            events = self._step(write_round, is_cancelled)
        except NumericsError:
            self.target.reset()  # no row that led to NaN may be reused
            raise
        self._revision = self.target.revision
        return events

    def begin(self) -> list[Event]:
        """Return the events before any step: the kept tokens, and the end if the reply is over.

        A reply of no tokens is over, and so is one whose kept tokens end it.
        """
        seconds, kept = self._continuation.seconds(), self._continuation.kept
        return [*([TokensKept(seconds, kept)] if kept else []), *self.end()]

    def end(self) -> list[Event]:
        """Return the event of its end, or []."""
        continuation = self._continuation
        if not continuation.finish_reason:
            return []
        self.is_over = True
        return [
            GenerationFinished(
                continuation.seconds(), continuation.finish_reason, continuation.text.finish()
            )
        ]

    def _step(self, write_round: Callable[["Reply"], Round], is_cancelled: bool) -> list[Event]:
        continuation, target = self._continuation, self.target
        unread = continuation.tokens[len(target) : -1]
        if unread and not (is_cancelled or continuation.finish_reason):
            if not self._was_moved:
                step = min(PREFILL_CHUNK, continuation.params.prefill_step_size or PREFILL_CHUNK)
                target.observe(unread[:step])
                return self._progress()
            target.observe(unread)  # in one step: another reply could undo it after every chunk
            unread = []
        events: list[Event] = [] if unread else self._progress()
        if not continuation.finish_reason:
            if is_cancelled:
                continuation.finish_reason = "cancelled"
            else:
                events += self._write(write_round)
        return events + self.end()

    def _progress(self) -> list[Event]:
        """Return the progress of the prefill; a prefill after a move is not reported."""
        if self._has_read_prompt:
            return []
        done, total = (
            len(self.target) + 1,
            len(self._continuation.tokens),
        )  # the last is the first root
        self._has_read_prompt = done == total
        return [PrefillProgress(self._continuation.seconds(), done, total, self._num_reused)]

    def _write(self, write_round: Callable[["Reply"], Round]) -> list[Event]:
        continuation, guard, events = self._continuation, self._guard, list[Event]()
        if not self._is_drafting:
            self._begin_drafting()
        if self._room < 0:
            continuation.finish_reason = "context"
        else:
            events += round_events(write_round(self), self._token_bytes)
        while guard.faults:
            events.append(DrafterFailed(continuation.seconds(), guard.name, guard.faults.pop()))
        if continuation.finish_reason:
            self._budget.end()
        return events

    # ---- the parts of a round, in their order; see `Engine.round` --------------------------

    def propose(self) -> Draft:
        """Return the draft of this round, cut to the nodes that are worth verifying."""
        self._begun_at = time.perf_counter()
        self._num_allowed = self._ask() if self._next_allowed is None else self._next_allowed
        self._next_allowed = None
        if run := self._continuation.ending(self._room):
            self._drafted_at = time.perf_counter()
            return ending_draft(self._continuation.root, run)
        most = self._continuation.draft_budget(self._room)
        certain = self._guard.num_certain(most)
        self._num_allowed = min(most, self._num_allowed + certain)
        draft = self._guard.propose(self._continuation.root, self._num_allowed)
        draft = self._budget.cut(draft) if self._num_allowed else draft
        self._drafted_at = time.perf_counter()
        return draft

    def verify(self, draft: Draft, num_pending: int = 0) -> WaitedRound:
        """Verify a draft with one forward of the target over all of its nodes; all is lazy.

        A draft with which the reply certainly ends needs no forward. `num_pending` counts the
        tokens of an earlier round that the host does not have yet.
        """
        if draft.ends_reply:
            return CertainRound(draft)
        target, n_nodes = self.target, draft.tree.n_nodes
        safe = draft.bounded(target.vocab_size)
        tree = safe.tree.padded(self._rows(n_nodes))
        logits = target.logits(target.forward_tree(tree))[:n_nodes]
        num_top_tokens = self._guard.active.num_top_tokens
        return self._continuation.verify(draft, logits, num_top_tokens, safe, num_pending)

    def look_ahead(self, pending: WaitedRound) -> None:
        """Launch the next round if it is certain to follow and to be plain.

        A plain round commits only its root, so the next position is certain before the host has the
        token. Penalties and functions of the text need that token first, so they exclude this.
        """
        continuation, target, self.ahead = self._continuation, self.target, None
        is_plain = pending.draft.tree.n_nodes == 1 and continuation.may_look_ahead
        if not (self._budget.looks_ahead and is_plain and continuation.goes_on(self._room)):
            return
        assert isinstance(pending, PendingRound), "the host has no token before it has waited"
        self._next_allowed = self._ask(num_pending=1)
        if self._next_allowed:
            return
        pending.launch()
        target.commit([0])
        root = pending.verdict.bonus_token[None]
        self.ahead = self.verify(Draft(DraftTree.chain(root)), num_pending=1)
        self.ahead.launch()

    def take(self, pending: WaitedRound) -> Round:
        """Wait for the device, and emit the tokens of the round.

        Raises:
            NumericsError: The target computed NaN on the accepted path.
            ValueError: The draft was no tree below the root; nothing is emitted.
        """
        read = pending.wait()  # a lazy draft can be checked only now
        self._guard.check_nodes(pending.draft, read.tokens, read.parents, self._continuation.root)
        return self._continuation.emit(read, pending.distributions)

    def commit(self, round: Round) -> None:
        """Commit the rows of the accepted path, unless `look_ahead` has done so."""
        if self.ahead is None and round.forwards:
            self.target.commit(round.path)

    def update(self, round: Round) -> Round:
        """Update drafter and budget with a round; return it with its times and sizes."""
        if round.forwards:
            self._guard.update(round)
        ended_at = time.perf_counter()
        took = replace(
            round,
            num_allowed=self._num_allowed,
            num_rows=self._rows(len(round.tokens)) * round.forwards,
            draft_ms=(self._drafted_at - self._begun_at) * 1e3,
            target_ms=(ended_at - self._drafted_at) * 1e3,
            ended_s=self._continuation.seconds(),
            context=len(self.target),
        )
        if round.forwards:
            self._budget.learn(took)
        return took

    # ---- the drafter and the budget --------------------------------------------------------

    def _begin_drafting(self) -> None:
        continuation, params, target = self._continuation, self._continuation.params, self.target
        self._guard.start(continuation.tokens, params, continuation.noise)
        measure = partial(quick_costs, target, params.num_draft_tokens + 1)
        is_worth_it = not self._guard.is_plain and params.max_tokens >= _SHORT_REPLY
        self._budget.begin(
            self._guard.active.name,
            params.sampling.temperature,
            len(target),
            measure if is_worth_it and params.num_draft_tokens else None,
        )
        self._is_drafting = True

    def _ask(self, num_pending: int = 0) -> int:
        limit = self._continuation.draft_budget(self._room, num_pending)
        return 0 if self._guard.is_plain else self._budget.ask(limit)

    def _rows(self, n_nodes: int) -> int:
        """Return the rows of the forward; rows that widen it would turn a chain into a tree."""
        return self._budget.rows(n_nodes) if self.target.draft_support == "tree" else n_nodes

    @property
    def _room(self) -> int:
        """Tokens that still fit into the context after the root; negative when it is full."""
        if self._context_length is None:
            return 1 << 30
        return self._context_length - len(self.target) - 1
