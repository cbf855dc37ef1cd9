"""One reply while it is being written: the prompt in chunks, then a round at a time.

`Writer._round` is the whole method of speculative decoding. Everything up to the verdict is lazy;
`LazyRound.read` is the one place that waits for the device. A round that is known to be plain is
handed to the device before the one before is read.

A writer knows all of its text, so it needs no state that nobody else may touch. Where its target
holds another text than it left there, because another reply was written meanwhile, it takes a
seat again: it reads what is missing and lets its drafter begin anew. The text is the same then, as
the chance of every token belongs to its position.
"""

import time
from collections.abc import Sequence
from functools import partial

from mlxspec.budget import Budget, Spent
from mlxspec.budget.cost import quick_costs
from mlxspec.drafters.base import Drafter, readers_of
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.tree import DraftTree
from mlxspec.errors import NumericsError
from mlxspec.params import GenerationParams
from mlxspec.reply.drafter_guard import Guard
from mlxspec.reply.readout import LazyRound
from mlxspec.reply.reply import Reply, StopWhen, never
from mlxspec.reply.reporting import RoundFacts, round_events
from mlxspec.target.decoder import PREFILL_CHUNK, Decoder
from mlxspec.tokenizer import Tokenizer
from mlxspec.trace.difference import common_length
from mlxspec.trace.events import DrafterFailed, Event, GenerationFinished, PrefillProgress

_SHORT_REPLY = 16  # tokens; measuring what a forward costs would take longer


class Writer:
    """Writes one reply, step by step; between two steps other replies may use its target.

    Attributes:
        target: What it was seated at last; None before.
        is_over: Whether the end was told.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        params: GenerationParams,
        target: Decoder,
        tokenizer: Tokenizer,
        *,
        context_length: int | None,
        stop_when: StopWhen = never,
    ) -> None:
        """Make ready; nothing is read.

        Args:
            prompt: Tokens, at least one.
            params: Settings.
            target: Whose reply it is to be.
            tokenizer: The target's.
            context_length: Tokens that fit; None for any number.
            stop_when: Asked of every token whether it is the last.
        """
        self.target: Decoder | None = None
        self.is_over = False
        self._text = list(prompt)  # and what was emitted
        self._reply = Reply(prompt, params, target, tokenizer, stop_when)
        self._tokenizer = tokenizer
        self._context_length = context_length
        self._num_reused = 0  # tokens of the prompt that need not be read
        self._has_read_prompt = False
        self._was_moved = False  # to another target, or back to one that others had used
        self._is_drafting = False  # since it was seated
        self._asked: int | None = None  # nodes to ask of the drafter in the next round
        self._ahead: LazyRound | None = None  # the next round, where the device has it already
        self._revision = 0  # of the target, as the last step left it

    @property
    def is_seated(self) -> bool:
        """Whether the target holds what the last step left there."""
        return self.target is not None and self.target.revision == self._revision

    def sit(self, target: Decoder, drafter: Drafter, budget: Budget) -> None:
        """Write with these from now on; what the target holds of the text need not be read."""
        self._was_moved = self.target is not None
        self.target, self._budget = target, budget
        # What a drafter that broke down reads of the target would break down as well.
        self._guard = Guard(drafter, target.vocab_size, partial(target.attach, ()))
        self._is_drafting, self._asked = False, None
        self.leave()  # or what another reply left staged would be committed
        target.attach(readers_of(drafter))
        reused = common_length(target.history, self._text[:-1])
        target.rollback_to(reused)
        if not self._has_read_prompt:
            self._num_reused = reused
        self._revision = target.revision

    def step(self, *, is_cancelled: bool = False) -> list[Event]:
        """Read a chunk of the prompt or write a round; return what happened.

        To be called while it is seated and not over. What happened is told after the commit, so
        whatever interrupts the reply leaves a state from which the next one continues correctly.

        Args:
            is_cancelled: Whether the reply ends here instead.
        """
        assert self.target is not None
        try:
            events = self._step(self.target, is_cancelled)
        except NumericsError:
            self.target.reset()  # no row that led there is to be reused
            raise
        self._revision = self.target.revision
        return events

    def end(self) -> list[Event]:
        """Return the end of a reply that is over, as one of no tokens is before its first step."""
        reply = self._reply
        if not reply.finish_reason:
            return []
        self.is_over = True
        return [GenerationFinished(reply.seconds(), reply.finish_reason, reply.text.finish())]

    def leave(self) -> None:
        """Let go of the target: what was ahead, or broke off, is not to be."""
        self._ahead = None
        if self.target is not None:
            self.target.commit([])

    # ---- a step ----------------------------------------------------------------------------

    def _step(self, target: Decoder, is_cancelled: bool) -> list[Event]:
        reply, unread = self._reply, self._text[len(target) : -1]
        if unread and not (is_cancelled or reply.finish_reason):
            if not self._was_moved:
                step = min(PREFILL_CHUNK, reply.params.prefill_step_size or PREFILL_CHUNK)
                target.observe(unread[:step])
                return self._progress(target)
            target.observe(unread)  # at once: others could undo it after every chunk
            unread = []
        events: list[Event] = [] if unread else self._progress(target)
        if not reply.finish_reason:
            if is_cancelled:
                reply.finish_reason = "cancelled"
            else:
                events += self._write(target)
        return events + self.end()

    def _progress(self, target: Decoder) -> list[Event]:
        """Tell how much of the prompt is read; what is read anew later on is not told."""
        if self._has_read_prompt:
            return []
        done, total = len(target) + 1, len(self._text)  # the last token is the first root
        self._has_read_prompt = done == total
        return [PrefillProgress(self._reply.seconds(), done, total, self._num_reused)]

    def _write(self, target: Decoder) -> list[Event]:
        reply, events = self._reply, list[Event]()
        if not self._is_drafting:
            self._begin_drafting(target)
        if self._room(target) < 0:
            reply.finish_reason = "context"
        else:
            facts = self._round(target)
            self._text += [token.token for token in facts.report.emit]
            events += round_events(facts, self._tokenizer.token_bytes)
        while self._guard.faults:
            fault = self._guard.faults.pop()
            events.append(DrafterFailed(reply.seconds(), self._guard.name, fault))
        if reply.finish_reason:
            self._budget.end()
        return events

    # ---- the round -------------------------------------------------------------------------

    def _round(self, target: Decoder) -> RoundFacts:
        """Draft, forward, verify, commit, update: exactly one target forward."""
        reply, guard, budget = self._reply, self._guard, self._budget
        start = time.perf_counter()
        asked = self._ask(target) if self._asked is None else self._asked
        self._asked = None
        draft = guard.propose(reply.root, asked)
        draft = budget.cut(draft) if asked else draft
        drafted = time.perf_counter()
        verified, self._ahead = self._ahead or self._verify(target, draft), None
        self._look_ahead(target, draft, verified)
        readout = verified.read()
        outcome = readout.outcome
        guard.check_nodes(draft, outcome.tokens, outcome.parents, reply.root)
        report = reply.take(readout)
        if self._ahead is None:
            target.commit(report.outcome.path)
        guard.update(report.outcome)
        end = time.perf_counter()
        rows = budget.rows(draft.tree.n_nodes)
        spent = Spent(asked, rows, (drafted - start) * 1e3, (end - drafted) * 1e3)
        budget.learn(report.outcome, spent)
        return RoundFacts(
            reply.num_rounds, reply.seconds(), len(target), draft, report, readout, spent
        )

    def _verify(self, target: Decoder, draft: Draft, num_pending: int = 0) -> LazyRound:
        n_nodes = draft.tree.n_nodes
        safe = draft.bounded(target.vocab_size)
        tree = safe.tree.padded(self._budget.rows(n_nodes))
        logits = target.logits(target.forward_tree(tree))[:n_nodes]
        num_top_tokens = self._guard.active.num_top_tokens
        return self._reply.verify(safe, logits, num_top_tokens, draft.tree, num_pending)

    # ---- the budget, and the round after this one ------------------------------------------

    def _begin_drafting(self, target: Decoder) -> None:
        reply, params = self._reply, self._reply.params
        self._guard.start(self._text, params, reply.noise)
        measure = partial(quick_costs, target, params.num_draft_tokens + 1)
        is_worth_it = not self._guard.is_plain and params.max_tokens >= _SHORT_REPLY
        self._budget.begin(
            self._guard.active.name,
            params.sampling.temperature,
            len(target),
            measure if is_worth_it and params.num_draft_tokens else None,
        )
        self._is_drafting = True

    def _ask(self, target: Decoder, num_pending: int = 0) -> int:
        limit = self._reply.draft_budget(self._room(target), num_pending)
        return 0 if self._guard.is_plain else self._budget.ask(limit)

    def _look_ahead(self, target: Decoder, draft: Draft, verified: LazyRound) -> None:
        """Hand the next round to the device if it is sure to take place, and to be plain.

        What this round commits is known then: its root, and at which position the next one draws.
        Penalties and functions of the text have to know the token of this round first.
        """
        is_plain = draft.tree.n_nodes == 1 and self._reply.may_look_ahead
        if not (self._budget.looks_ahead and is_plain and self._reply.goes_on(self._room(target))):
            return
        self._asked = self._ask(target, num_pending=1)
        if self._asked:
            return
        verified.start()
        target.commit([0])
        root = verified.verdict.bonus_token[None]
        self._ahead = self._verify(target, Draft(DraftTree.chain(root)), num_pending=1)
        self._ahead.start()

    def _room(self, target: Decoder) -> int:
        """Tokens that the context takes beside the pending root; negative when it is full."""
        if self._context_length is None:
            return 1 << 30
        return self._context_length - len(target) - 1
