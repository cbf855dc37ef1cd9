"""One sequence of a batch: its reply, its drafter, its events and figures."""

import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import mlx.core as mx

from mlxspec.batch.jobs import Job
from mlxspec.batch.replies import BatchReply
from mlxspec.decoder.decoder import Decoder
from mlxspec.device.backend import values
from mlxspec.drafters.base import Drafter
from mlxspec.drafters.grammar.drafter import constrained
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.errors import RankLostError
from mlxspec.grammar.constraint import Constraint
from mlxspec.reply.continuation import Continuation, StopWhen, never
from mlxspec.reply.drafter_guard import Guard
from mlxspec.reply.events import round_events
from mlxspec.reply.waited_round import WaitedRound
from mlxspec.text.tokenizer import Tokenizer
from mlxspec.trace.events import (
    DrafterFailed,
    Event,
    GenerationFailed,
    GenerationFinished,
    PrefillProgress,
    TokensKept,
)
from mlxspec.trace.reply_text import ReplyText
from mlxspec.trace.stats import GenerationStats

T = TypeVar("T")


class BatchSequence:
    """One reply while it is written.

    Attributes:
        drafter: Its drafter, or None before it has one.
        stats: The figures of the reply so far.
        faults: Why its drafter failed; all later rounds are plain.
        error: The error that ended the reply; the other sequences continue without it.
        has_ended: Whether it has reported its end.
        held_back: The last text of the reply if its stream has ended already.
    """

    def __init__(
        self, job: Job, target: Decoder, tokenizer: Tokenizer, stop_when: StopWhen = never
    ) -> None:
        self.job = job
        self.constraint: Constraint | None = None
        self.drafter: Drafter = NoDrafter()
        self.stats = GenerationStats()
        self.faults: list[str] = []
        self.error: Exception | None = None
        self.held_back = ""
        self.has_ended = False
        self._target, self._tokenizer, self._stop_when = target, tokenizer, stop_when
        self._guard: Guard | None = None
        self._events: list[Event] = []
        self._tokens: list[int] = []
        self._text = ReplyText()
        self.continuation = self._new_continuation()
        self.attempt(self._begin)

    @property
    def is_over(self) -> bool:
        """Whether it emits no more tokens."""
        return self.error is not None or self.continuation.finish_reason is not None

    @property
    def sound_drafter(self) -> Drafter:
        """The drafter, or `NoDrafter` once it has failed; a grammar still forces tokens."""
        return constrained(NoDrafter(), self.constraint) if self.faults else self.drafter

    def begin_again(self) -> None:
        """Continue from the reported text: an interrupt left everything after it incomplete."""
        before = self.continuation
        if before.finish_reason is not None and before.num_emitted == len(self._tokens):
            return
        self.continuation = self._new_continuation()
        self.continuation.begun_at = before.begun_at
        self.continuation.num_rounds = before.num_rounds
        self.attempt(self._begin)
        if before.finish_reason == "cancelled":
            self.cancel()

    def _new_continuation(self) -> Continuation:
        job, begun = self.job, self.job.num_begun
        return Continuation(job.prompt, job.params, self._target, self._tokenizer, num_begun=begun)

    def _begin(self) -> None:
        continuation, told = self.continuation, self._tokens
        self.constraint = continuation.constrain(self.job.matcher, self._tokenizer)
        continuation.keep(told)
        # Not earlier, because it has already seen these tokens.
        continuation.stop_when = self._stop_when
        self.held_back, self._text = "", ReplyText()
        self._text.add(TokensKept(0.0, continuation.kept))

    def cancel(self) -> None:
        """End the reply before its next round; a reply that is over does not change."""
        if not self.is_over:
            self.continuation.finish_reason = "cancelled"

    def attempt(self, act: Callable[[], T]) -> T | None:
        """Run an action of this sequence: an error in it ends only this reply.

        After an error it does nothing.
        """
        if self.error is None:
            try:
                return act()
            except RankLostError:  # all sequences have lost that part of the target
                raise
            except Exception as error:  # functions of the caller may raise anything
                raised_in = error.__traceback__ and error.__traceback__.tb_next
                self.error = error.with_traceback(raised_in)
                # Otherwise they would keep the logits of the round in memory.
                traceback.clear_frames(raised_in)
        return None

    def has_read(self, done: int, num_reused: int) -> None:
        """Report how many tokens of the prompt are read; `num_reused` needed no forward."""
        if not self._tokens:  # otherwise it is read again, which is no progress
            total = len(self.job.prompt)
            self.tell(PrefillProgress(self.continuation.seconds(), done, total, num_reused))

    def draft_with(self, guard: Guard) -> None:
        """Use this drafter from now on, after the text so far."""
        self._guard = guard
        self._guard.start(self.continuation.tokens, self.job.params, self.continuation.noise)
        self._tell_faults()

    def propose(self, most: int) -> Draft:
        """Return a draft of at most `most` nodes, without the root.

        Raises:
            ValueError: It is no valid tree; a batch checks its trees before the forward.
        """
        root, guard = self.continuation.root, self._own_guard
        draft = guard.propose(root, guard.num_certain(most) if guard.is_plain else most)
        tree = draft.tree
        guard.check_nodes(draft, values(tree.tokens), values(tree.parents), root)
        return draft

    def verify(self, draft: Draft, logits: mx.array) -> WaitedRound:
        """Verify its draft, given (n_nodes, V) logits; everything is lazy."""
        return self.continuation.verify(draft, logits, self._own_guard.active.num_top_tokens)

    def take(self, pending: WaitedRound) -> Round:
        """Emit the tokens of a computed round; the path of the result must be committed.

        Raises:
            NumericsError: The target computed NaN on the accepted path.
        """
        return self.continuation.emit(pending.read(), pending.distributions)

    def learn(self, round: Round) -> None:
        """Update drafter and figures with a committed round."""
        self._own_guard.update(round)
        ended = replace(round, ended_s=self.continuation.seconds())
        for event in round_events(ended, self._tokenizer.token_bytes):
            self.tell(event)
        self._tell_faults()

    def tell(self, event: Event) -> None:
        """Add an event of the reply."""
        self.stats.add(event)
        self._tokens += [token.token for token in getattr(event, "emit", ())]
        self._text.add(event)
        if isinstance(event, DrafterFailed):
            self.faults.append(event.message)
        self._events.append(event)

    def take_events(self) -> list[Event]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def finish(self) -> None:
        """Report the end, with the figures; call it once, when the sequence is over."""
        reason, error = self.continuation.finish_reason, self.error
        if error is not None:
            message, told = str(error) or type(error).__name__, traceback.format_exception(error)
            self.tell(GenerationFailed(self.continuation.seconds(), message, "".join(told)))
            self.has_ended = True
            return
        rest = self.held_back + self.continuation.text.finish()
        assert reason
        end = GenerationFinished(self.continuation.seconds(), reason, rest)
        self.tell(end)
        self._events[-1] = replace(end, stats=self.stats.as_dict())
        self.has_ended = True

    def finished(self) -> BatchReply:
        """Return the reply; call it when the sequence has reported its end."""
        reason = "error" if self.error is not None else self.continuation.finish_reason
        assert reason
        return BatchReply(
            index=self.job.index,
            tokens=tuple(self._tokens),
            text=self._text.text,
            reasoning=self._text.reasoning,
            answer=self._text.answer,
            finish_reason=reason,
            stats=self.stats.as_dict(),
            fault="; ".join(self.faults),
            error=self.error,
        )

    @property
    def _own_guard(self) -> Guard:
        assert self._guard is not None, "a sequence gets a drafter before its first round"
        return self._guard

    def _tell_faults(self) -> None:
        guard = self._own_guard
        while guard.faults:
            message = guard.faults.pop(0)
            self.tell(DrafterFailed(self.continuation.seconds(), guard.name, message))
