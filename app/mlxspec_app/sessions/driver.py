"""Runs the orders for a conversation and publishes the events that result.

It records which turns of the screen are part of the conversation. A refused turn is on the screen,
with the reason below it, but is not part of the conversation until the user sends it again.
"""

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

from mlxspec.errors import ContextLengthError, MlxspecError
from mlxspec.params import GenerationParams
from mlxspec.trace.alternatives import Alternative
from mlxspec.trace.events import Event, GenerationFailed, TurnStarted
from mlxspec.trace.proof import Proof
from mlxspec_app.conversation.messages import turns_of
from mlxspec_app.conversation.session import (
    AlternativesFound,
    ChatCleared,
    ChatCut,
    ChatOpened,
    ContextFull,
    ProgressCallback,
    ProofFinished,
    ProofProgress,
    RaceFinished,
    RaceProgress,
    ReplyDiscarded,
    SessionEvent,
    SessionNotice,
    TurnsForgotten,
)
from mlxspec_app.sessions.cost_meter import CostCurveLike, CostMeter
from mlxspec_app.sessions.no_model import NoModel

ShouldStop = Callable[[], bool]


class ConversationLike(Protocol):
    """The part of `mlxspec.chat.conversation.Conversation` that is used here."""

    system: str | None
    forgets_oldest: bool

    @property
    def turns(self) -> list[tuple[str, str]]:
        """Messages of the user and their replies."""

    @property
    def reply_tokens(self) -> Sequence[Sequence[int]]:
        """Token ids of each reply; empty where only its text is stored."""

    @property
    def num_forgotten(self) -> int:
        """Number of turns that the last prompt left out."""

    def reply(
        self, text: str, params: GenerationParams, *, should_stop: ShouldStop = lambda: False
    ) -> Iterator[Event]:
        """Yield the events of the reply to `text`, `TurnStarted` first."""

    def regenerate(
        self, params: GenerationParams, *, should_stop: ShouldStop = lambda: False
    ) -> Iterator[Event]:
        """Yield the events of another reply to the last message."""

    def prove(
        self,
        *,
        should_stop: ShouldStop = lambda: False,
        on_progress: ProgressCallback = lambda done, total: None,
    ) -> Proof:
        """Compare the last reply with plain decoding."""

    def alternatives(self, turn: int, position: int) -> list[Alternative]:
        """Return the other tokens that were possible at a position of a reply."""

    def branch(
        self,
        turn: int,
        position: int,
        token: int,
        params: GenerationParams,
        *,
        should_stop: ShouldStop = lambda: False,
    ) -> Iterator[Event]:
        """Yield the events of a reply that keeps its start and has `token` at `position`."""

    def fits_alone(self, text: str) -> bool:
        """Return whether a message would fit the context without earlier turns."""

    def race(
        self,
        text: str,
        params: GenerationParams,
        *,
        should_stop: ShouldStop = lambda: False,
        on_run: Callable[[str], None] = lambda name: None,
    ) -> tuple[list[Event], list[Event]]:
        """Return the events of a plain reply and of one with drafts; the chat stays unchanged."""

    def measure_cost(self, *, should_stop: ShouldStop = lambda: False) -> CostCurveLike | None:
        """Measure forwards over the tokens in the cache; None if stopped."""

    def reset(self) -> None:
        """Forget the conversation."""

    def restore(
        self,
        turns: Iterable[tuple[str, str]],
        system: str | None = None,
        tokens: Sequence[Sequence[int]] = (),
    ) -> None:
        """Continue an earlier conversation."""

    def cut(self, num_turns: int) -> None:
        """Keep only the first turns."""


class ConversationDriver:
    """Drives one conversation; each method may take long, and publishes events meanwhile."""

    def __init__(
        self,
        publish: Callable[[Event | SessionEvent], None],
        system: str | None = None,
        *,
        note_reply: Callable[[float, bool], str] = lambda speedup, is_sampled: "",
    ) -> None:
        """Start with an empty conversation and no model.

        `publish` is called with each event. `note_reply` is called for each reply whose speed-up
        counts, with the speed-up and whether the reply was sampled; it returns an objection to the
        drafter, or "".
        """
        self._note_reply = note_reply
        self._conversation: ConversationLike = NoModel(system)
        self._publish = publish
        self._included: list[bool] = []  # for each turn on the screen: is it in the conversation?
        self._refused = ""  # the last turn, if it is not in the conversation
        self._meter = CostMeter()

    def switch_to(self, conversation: ConversationLike) -> None:
        """Continue the turns of the present conversation in another one, and drop the first."""
        before, self._conversation = self._conversation, conversation
        self._meter = CostMeter()
        conversation.restore(before.turns, before.system, before.reply_tokens)
        conversation.forgets_oldest = before.forgets_oldest

    def change_drafter(self) -> None:
        """Continue with another drafter, which has seen none of the replies."""
        self._meter.forget_replies()

    def reply(self, text: str, params: GenerationParams, should_stop: ShouldStop) -> None:
        self._included.append(False)
        self._answer(text, partial(self._conversation.reply, text, params, should_stop=should_stop))

    def regenerate(self, params: GenerationParams, should_stop: ShouldStop) -> None:
        self._publish(ReplyDiscarded())
        text = self._refused
        begin = partial(self._conversation.reply, text) if text else self._conversation.regenerate
        self._answer(text, partial(begin, params, should_stop=should_stop))

    def edit(self, turn: int, text: str, params: GenerationParams, should_stop: ShouldStop) -> None:
        self._conversation.cut(self._own_turn(turn))
        del self._included[turn:]
        self._refused = ""
        self._publish(ChatCut(turn))
        self.reply(text, params, should_stop)

    def new_chat(self) -> None:
        self._conversation.reset()
        self._included, self._refused = [], ""
        self._publish(ChatCleared())

    def open_chat(self, chat: ChatOpened) -> None:
        turns = turns_of(chat.messages)
        self._included = [turn.reply is not None for turn in turns]
        self._refused = turns[-1].user if turns and turns[-1].reply is None else ""
        included = [(turn.user, turn.reply) for turn in turns if turn.reply is not None]
        tokens = [turn.tokens for turn in turns if turn.reply is not None]
        self._conversation.restore(included, chat.system, tokens)
        self._publish(chat)

    def set_system(self, text: str) -> None:
        self._conversation.system = text or None
        self._publish(TurnStarted("system", text))

    def forget_oldest(self, allowed: bool) -> None:
        self._conversation.forgets_oldest = allowed

    def prove(self, should_stop: ShouldStop) -> None:
        def show(done: int, total: int) -> None:
            self._publish(ProofProgress(done, total))

        try:
            proof = self._conversation.prove(should_stop=should_stop, on_progress=show)
        except (ValueError, MlxspecError) as error:
            self._publish(ProofFinished(None, str(error)))
        else:
            self._publish(ProofFinished(proof))

    def _own_turn(self, turn: int) -> int:
        """Return the turn's index in the conversation; the screen also counts refused turns."""
        return sum(self._included[:turn])

    def find_alternatives(self, turn: int, position: int) -> None:
        try:
            found = self._conversation.alternatives(self._own_turn(turn), position)
        except Exception as error:  # the thread's edge: an error ends this query, not the chat
            why = str(error) if isinstance(error, ValueError) else describe(error)
            self._publish(AlternativesFound(turn, position, message=why))
        else:
            self._publish(AlternativesFound(turn, position, tuple(found)))

    def branch(
        self,
        turn: int,
        position: int,
        token: int,
        params: GenerationParams,
        should_stop: ShouldStop,
    ) -> None:
        own_turn = self._own_turn(turn)
        try:
            events = self._conversation.branch(
                own_turn, position, token, params, should_stop=should_stop
            )
        except (ValueError, MlxspecError) as error:
            self._publish(AlternativesFound(turn, position, message=str(error)))
            return
        del self._included[turn + 1 :]
        self._refused = ""
        self._publish(ChatCut(turn + 1))
        self._publish(ReplyDiscarded())
        self._answer("", lambda: events)

    def race(self, text: str, params: GenerationParams, should_stop: ShouldStop) -> None:
        """Record a plain run and one with drafts; neither becomes part of the chat."""

        def show(drafter: str) -> None:
            self._publish(RaceProgress(drafter))

        try:
            plain, drafted = self._conversation.race(
                text, params, should_stop=should_stop, on_run=show
            )
        except Exception as error:  # the thread's edge: an error ends this race, not the chat
            self._publish(RaceFinished(message=describe_race(error)))
            return
        if should_stop():
            stopped = "the race was stopped; the chat is as it was"
            self._publish(SessionNotice(stopped, is_trouble=False))
            self._publish(RaceFinished())
            return
        self._publish(RaceFinished(tuple(plain), tuple(drafted)))

    def use_idle_time(self, should_stop: ShouldStop) -> str:
        """Measure the cost curve if due, and compare the last reply with plain decoding.

        The measurement stops as soon as `should_stop` returns True. Returns an objection of the
        replies to the drafter, or "".
        """
        if self._meter.is_due and not should_stop():
            self._measure(should_stop)
        compared = self._meter.compare()
        if compared is None:
            return ""
        self._publish(compared)
        if compared.speedup is None or not self._meter.counts:
            return ""
        return self._note_reply(compared.speedup, self._meter.is_sampled)

    def _measure(self, should_stop: ShouldStop) -> None:
        try:
            curve = self._conversation.measure_cost(should_stop=should_stop)
        except Exception as error:  # the thread's edge: a chat works without these figures
            self._meter.give_up()
            self._publish(SessionNotice(f"a plain forward was not measured: {describe(error)}"))
            return
        if curve is not None:
            self._publish(self._meter.note(curve))

    def _answer(self, text: str, begin: Callable[[], Iterator[Event]]) -> None:
        """Publish the events of a reply; an error ends this reply, not the chat.

        `text` is the turn to answer; "" if it is already in the conversation.
        """
        last: Event | None = None
        num_forgotten = self._conversation.num_forgotten
        try:
            for last in begin():
                self._publish(last)
                self._meter.record(last)
                if isinstance(last, TurnStarted):
                    self._mark_included(num_forgotten)
        except Exception as error:  # the thread's edge: an error becomes a row on the screen
            if last is None and text:
                self._refused = text
                self._publish(TurnStarted("user", text))
            ts = getattr(last, "ts", 0.0)
            self._publish(GenerationFailed(ts, describe(error), traceback.format_exc()))
            if last is None and isinstance(error, ContextLengthError):
                asked = text or self._conversation.turns[-1][0]
                fits = self._conversation.fits_alone(asked)
                self._publish(ContextFull(error.context_length, fits))

    def _mark_included(self, num_forgotten: int) -> None:
        self._refused = ""
        if self._included:
            self._included[-1] = True
        if self._conversation.num_forgotten > num_forgotten:
            self._publish(TurnsForgotten(self._conversation.num_forgotten))


def describe_race(error: Exception) -> str:
    """Return why there is no race."""
    return f"no race: {error if isinstance(error, ValueError) else describe(error)}"


def describe(error: BaseException) -> str:
    """Return the message for the user: our own errors as they are, others with their type."""
    if isinstance(error, MlxspecError):
        return str(error)
    return f"{type(error).__name__}: {error}"
