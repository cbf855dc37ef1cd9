"""One reply: its job, text, drafter, events and figures, for every writer.

A `ReplyWriter` writes it with a decoder of its own, a `BatchWriter` together with other replies. It
may move from one to the other between two rounds, and its text stays the same: it stores all of its
tokens, and the random numbers of a token depend only on the token's position.
"""

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from mlxspec.decoder.decoder import Decoder
from mlxspec.decoder.exact import exact_support
from mlxspec.device import backend, memory
from mlxspec.drafters.base import Drafter
from mlxspec.drafters.grammar import GrammarDrafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.prediction import PredictionDrafter
from mlxspec.drafts.round import Round
from mlxspec.errors import RankLostError
from mlxspec.grammar.constraint import Constraint
from mlxspec.reply.continuation import Continuation, StopWhen, never
from mlxspec.reply.drafter_guard import Guard
from mlxspec.reply.events import round_events
from mlxspec.reply.job import Job
from mlxspec.text.tokenizer import Tokenizer
from mlxspec.trace.difference import token_hash
from mlxspec.trace.events import (
    DrafterFailed,
    Event,
    FinishReason,
    GenerationFailed,
    GenerationFinished,
    PrefillProgress,
    TokensKept,
)
from mlxspec.trace.reply_text import ReplyText
from mlxspec.trace.stats import GenerationStats

_NO_LIMIT = 1 << 30

T = TypeVar("T")


@dataclass(frozen=True)
class BatchReply:
    """A finished reply."""

    index: int  # of its prompt, counted from 0
    tokens: tuple[int, ...]  # the emitted ones, including the stop token
    text: str  # without a stop string
    reasoning: str  # the text between the marks of reasoning
    answer: str  # the text outside of these marks
    finish_reason: FinishReason | Literal["error"]
    # As of `GenerationStats.as_dict`; times are those of the whole batch while the reply was in it.
    stats: Mapping[str, Any]
    fault: str = ""  # why its drafter failed, after which all rounds were plain
    # What ended the reply if `finish_reason` is "error": a grammar that cannot continue, or an
    # exception of a function of the caller. Tokens and text are those before it.
    error: Exception | None = None

    @property
    def token_hash(self) -> str:
        """Equal for two replies if their tokens are; see `mlxspec.trace.difference`."""
        return token_hash(self.tokens)

    def raise_error(self) -> None:
        """Raise the error that ended the reply, if there is one."""
        if self.error is not None:
            raise self.error


class Reply:
    """One reply while it is written.

    Attributes:
        drafter: Its drafter, or `NoDrafter` before it has one; `guard` calls it.
        stats: The figures of the reply so far.
        faults: Why its drafter failed; all later rounds are plain.
        error: The error that ended the reply; other replies continue without it.
        has_ended: Whether it has reported its end.
    """

    def __init__(
        self, job: Job, target: Decoder, tokenizer: Tokenizer, stop_when: StopWhen = never
    ) -> None:
        """Prepare a reply; nothing is computed yet. An error here is the reply's own `error`."""
        self.job = job
        self.stats = GenerationStats()
        self.faults: list[str] = []
        self.error: Exception | None = None
        self.has_ended = False
        self._target, self._tokenizer, self._stop_when = target, tokenizer, stop_when
        self._num_syncs = backend.host_syncs()
        self._events: list[Event] = []
        self._tokens: list[int] = []  # those that were reported
        self._text = ReplyText()
        self._has_read_prompt = False
        self._constraint: Constraint | None = None
        self.continuation = Continuation(job, target, tokenizer, stop_when)
        self.attempt(self._begin)
        self._guard_with(NoDrafter())

    @property
    def is_over(self) -> bool:
        """Whether it emits no more tokens."""
        return self.error is not None or self.continuation.finish_reason is not None

    def _begin(self) -> None:
        self._constraint = self.continuation.constrain()
        self.continuation.keep(self.job.kept)
        if kept := self.continuation.kept:
            self.tell(TokensKept(self.continuation.seconds(), kept))

    def begin_again(self) -> None:
        """Continue from the reported text: an interrupt left everything after it incomplete."""
        before, told = self.continuation, self._tokens
        self.continuation = Continuation(self.job, self._target, self._tokenizer)
        self.continuation.begun_at = before.begun_at
        self.continuation.num_rounds = before.num_rounds
        self._text = ReplyText()
        self.attempt(self._continue)
        was_told = before.num_emitted == len(told)
        if was_told or before.finish_reason == "cancelled":
            self.continuation.finish_reason = before.finish_reason

    def _continue(self) -> None:
        continuation = self.continuation
        self._constraint = continuation.constrain()
        continuation.keep(self._tokens)
        continuation.stop_when = self._stop_when  # not earlier: it has seen these tokens
        self._text.add(TokensKept(0.0, continuation.kept))

    # ---- its drafter -----------------------------------------------------------------------

    def draft_with(self, drafter: Drafter) -> None:
        """Use a drafter from the next round on, unless an earlier one has failed.

        The prediction of the job and the grammar draft beside it.
        """
        if self.faults:
            drafter = NoDrafter()
        elif self.job.predicted:
            drafter = PredictionDrafter(self.job.predicted, drafter)
        if self._constraint is not None:
            drafter = GrammarDrafter(self._constraint, drafter)
        self._guard_with(drafter)

    def _guard_with(self, drafter: Drafter) -> None:
        self.drafter = drafter
        support = self._target.draft_support
        if self.job.params.exact:
            support = exact_support(support)
        self.guard = Guard(drafter, self._target.vocab_size, support)
        self._is_drafting = False

    def start_drafter(self) -> None:
        """Start the drafter after the text so far, unless it was started already."""
        if not self._is_drafting:
            self.guard.start(self.continuation.tokens, self.job.params, self.continuation.noise)
            self._is_drafting = True

    # ---- its end ---------------------------------------------------------------------------

    def cancel(self) -> None:
        """End the reply before its next round; a reply that is over does not change."""
        if not self.is_over:
            self.continuation.finish_reason = "cancelled"

    def room(self, length: int) -> int:
        """Return how many tokens fit into the context after `length` rows and the root.

        It is negative when the context is full.
        """
        most = self._target.context_length
        return _NO_LIMIT if most is None else most - length - 1

    def end_if_full(self, length: int) -> None:
        """End the reply if `length` rows fill the context."""
        if self.room(length) < 0 and not self.is_over:
            self.continuation.finish_reason = "context"

    def attempt(self, act: Callable[[], T]) -> T | None:
        """Run an action; an error in it ends only this reply, which then runs no more of them."""
        if self.error is None:
            try:
                return act()
            except RankLostError:  # all replies have lost that part of the target
                raise
            except Exception as error:  # functions of the caller may raise anything
                raised_in = error.__traceback__ and error.__traceback__.tb_next
                self.error = error.with_traceback(raised_in)
                # Otherwise they would keep the logits of the round in memory.
                traceback.clear_frames(raised_in)
        return None

    def raise_error(self) -> None:
        """Raise the error that ended the reply, if there is one."""
        if self.error is not None:
            raise self.error

    def finish(self) -> None:
        """Report the end, with the figures; call it once, when the reply is over."""
        seconds, error = self.continuation.seconds(), self.error
        if error is not None:
            message, told = str(error) or type(error).__name__, traceback.format_exception(error)
            self.tell(GenerationFailed(seconds, message, "".join(told)))
        else:
            reason = self.continuation.finish_reason
            assert reason, "only a reply that is over ends"
            end = GenerationFinished(seconds, reason, self.continuation.text.finish())
            self.stats.add(end)
            self.tell(replace(end, stats=self._figures()))
        self.has_ended = True

    def _figures(self) -> dict[str, Any]:
        others = {
            "token_hash": token_hash(self._tokens),
            "host_syncs": backend.host_syncs() - self._num_syncs,
            "peak_memory_gb": memory.peak_memory_gb(),
        }
        return self.stats.as_dict() | others

    def finished(self) -> BatchReply:
        """Return the reply; call it when it has reported its end."""
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

    # ---- its events ------------------------------------------------------------------------

    def has_read(self, done: int, num_reused: int) -> None:
        """Report how many tokens are read; a second reading does not count."""
        if self._has_read_prompt:
            return
        total = len(self.continuation.tokens)  # the last one is the first root
        self._has_read_prompt = done == total
        self.tell(PrefillProgress(self.continuation.seconds(), done, total, num_reused))

    def has_written(self, round: Round) -> None:
        """Report a committed round, and the failures of the drafter."""
        for event in round_events(round, self._tokenizer.token_bytes):
            self.tell(event)
        while self.guard.faults:
            self.faults.append(self.guard.faults.pop(0))
            seconds = self.continuation.seconds()
            self.tell(DrafterFailed(seconds, self.guard.name, self.faults[-1]))

    def tell(self, event: Event) -> None:
        """Add an event of the reply."""
        self.stats.add(event)
        self._tokens += [token.token for token in getattr(event, "emit", ())]
        self._text.add(event)
        self._events.append(event)

    def take_events(self) -> list[Event]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events
