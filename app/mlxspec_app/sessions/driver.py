"""Carries out the orders for a conversation and publishes the events that result.

It records which turns of the screen are part of the conversation. A refused turn is on the screen,
with the reason below it, but is not part of the conversation until the user sends it again.
"""

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mlxspec.errors import ContextLengthError, MlxspecError
from mlxspec.params import GenerationParams
from mlxspec.trace.events import Event, GenerationFailed, TurnStarted
from mlxspec_app.conversation import events, orders
from mlxspec_app.conversation.messages import turns_of
from mlxspec_app.sessions.speed_meter import SpeedMeter
from mlxspec_app.text.chat_labels import label_of

if TYPE_CHECKING:
    from mlxspec import Conversation

ShouldStop = Callable[[], bool]
ProgressCallback = Callable[[int, int], None]
"""Called during a download with the bytes done and the bytes in all."""


@dataclass
class NoModel:
    """Stores the turns while no model is loaded, until a `Conversation` continues them."""

    system: str | None = None
    forgets_oldest: bool = False
    turns: list[tuple[str, str]] = field(default_factory=list)
    reply_tokens: list[Sequence[int]] = field(default_factory=list)
    num_forgotten: int = 0

    def reset(self) -> None:
        self.turns, self.reply_tokens = [], []

    def restore(
        self,
        turns: Iterable[tuple[str, str]],
        system: str | None = None,
        tokens: Sequence[Sequence[int]] = (),
    ) -> None:
        self.turns, self.reply_tokens = list(turns), list(tokens)
        self.system = system

    def cut(self, num_turns: int) -> None:
        del self.turns[num_turns:]
        del self.reply_tokens[num_turns:]


class ConversationDriver:
    """Drives one conversation; each method may take long, and publishes events meanwhile."""

    def __init__(self, publish: Callable[[events.AnyEvent], None]) -> None:
        """Start with an empty conversation and no model."""
        self._conversation: Conversation | NoModel = NoModel()
        self._publish = publish
        self._included: list[bool] = []  # for each turn on the screen: is it in the conversation?
        self._refused = ""  # the last turn, if it is not in the conversation
        self.meter = SpeedMeter()

    def switch_to(self, conversation: "Conversation | NoModel") -> None:
        """Continue the turns of the present conversation in another one, and drop the first."""
        before, self._conversation = self._conversation, conversation
        self.meter = SpeedMeter()
        conversation.restore(before.turns, before.system, before.reply_tokens)
        conversation.forgets_oldest = before.forgets_oldest

    def carry_out(
        self, order: orders.Order, params: GenerationParams, should_stop: ShouldStop
    ) -> None:
        """Carry out an order; a reply gets `params` and ends as soon as `should_stop` is True."""
        match order:
            case orders.Say(text):
                self._included.append(False)
                self._reply(text, params, should_stop)
            case orders.Regenerate():
                self._regenerate(params, should_stop)
            case orders.Resume():
                self._resume(params, should_stop)
            case orders.Edit(turn, text):
                self._conversation.cut(self._own_turn(turn))
                self._cut_to(turn)
                self._included.append(False)
                self._reply(text, params, should_stop)
            case orders.Branch():
                self._branch(order, params, should_stop)
            case orders.FindAlternatives():
                self._find_alternatives(order)
            case orders.Prove():
                self._prove(should_stop)
            case orders.Race():
                self._race(order, params, should_stop)
            case orders.NewChat():
                self._conversation.reset()
                self._included, self._refused = [], ""
                self._publish(events.ChatCleared())
            case orders.OpenChat(chat):
                self._open(chat)
            case orders.SetSystem(text):
                self.set_system(text)
            case orders.ForgetOldest(is_allowed):
                self._conversation.forgets_oldest = is_allowed

    def set_system(self, text: str) -> None:
        self._conversation.system = text or None
        self._publish(TurnStarted("system", text))

    @property
    def _model(self) -> "Conversation":
        if isinstance(self._conversation, NoModel):
            raise MlxspecError("no model is loaded: choose one with /model")
        return self._conversation

    def _own_turn(self, turn: int) -> int:
        """Return the turn's index in the conversation; the screen also counts refused turns."""
        return sum(self._included[:turn])

    def _cut_to(self, num_turns: int) -> None:
        del self._included[num_turns:]
        self._refused = ""
        self._publish(events.ChatCut(num_turns))

    def _reply(self, text: str, params: GenerationParams, should_stop: ShouldStop) -> None:
        self._answer(text, lambda: self._model.reply(text, params, should_stop=should_stop))

    def _regenerate(self, params: GenerationParams, should_stop: ShouldStop) -> None:
        self._publish(events.ReplyDiscarded())
        if self._refused:
            self._reply(self._refused, params, should_stop)
        else:
            self._answer("", lambda: self._model.regenerate(params, should_stop=should_stop))

    def _resume(self, params: GenerationParams, should_stop: ShouldStop) -> None:
        try:
            reply = self._model.resume(params, should_stop=should_stop)
        except (ValueError, MlxspecError) as error:
            self._publish(events.OrderRefused(str(error)))
        else:
            self._publish(events.ReplyDiscarded())
            self._answer("", lambda: reply)

    def _branch(
        self, order: orders.Branch, params: GenerationParams, should_stop: ShouldStop
    ) -> None:
        turn, position = order.turn, order.position
        try:
            reply = self._model.branch(
                self._own_turn(turn), position, order.token, params, should_stop=should_stop
            )
        except (ValueError, MlxspecError) as error:
            self._publish(events.AlternativesFound(turn, position, message=str(error)))
            return
        self._cut_to(turn + 1)
        self._publish(events.ReplyDiscarded())
        self._answer("", lambda: reply)

    def _open(self, chat: events.ChatOpened) -> None:
        turns = turns_of(chat.messages)
        self._included = [turn.reply is not None for turn in turns]
        self._refused = turns[-1].user if turns and turns[-1].reply is None else ""
        included = [(turn.user, turn.reply) for turn in turns if turn.reply is not None]
        tokens = [turn.tokens for turn in turns if turn.reply is not None]
        self._conversation.restore(included, chat.system, tokens)
        self._publish(chat)

    def _prove(self, should_stop: ShouldStop) -> None:
        try:
            proof = self._model.prove(
                should_stop=should_stop,
                on_progress=lambda done, total: self._publish(events.ProofProgress(done, total)),
            )
        except (ValueError, MlxspecError) as error:
            self._publish(events.OrderRefused(str(error)))
        else:
            self._publish(events.ProofFinished(proof))

    def _find_alternatives(self, order: orders.FindAlternatives) -> None:
        turn, position = order.turn, order.position
        try:
            found = self._model.alternatives(self._own_turn(turn), position)
        except Exception as error:  # the thread's edge: an error ends this query, not the chat
            self._publish(events.AlternativesFound(turn, position, message=_plainly(error)))
        else:
            self._publish(events.AlternativesFound(turn, position, tuple(found)))

    def _race(self, order: orders.Race, params: GenerationParams, should_stop: ShouldStop) -> None:
        """Publish a plain run and one with drafts; neither becomes part of the chat."""
        params = replace(params, max_tokens=order.max_tokens)
        try:
            for run, event in self._model.race(order.prompt, params, should_stop=should_stop):
                self._publish(events.RaceProgress(run, event))
        except Exception as error:  # the thread's edge: an error ends this race, not the chat
            self._publish(events.OrderRefused(f"no race: {_plainly(error)}"))
        else:
            self._publish(events.RaceFinished(is_stopped=should_stop()))

    def use_idle_time(self, should_stop: ShouldStop) -> float | None:
        """Keep the rows of the chat, unless stopped, and compare the last reply.

        Returns the speed-up over plain decoding of a reply, once, if it predicts that of new ones.
        """
        self._keep_rows(should_stop)
        compared = self.meter.compare()
        if compared is None:
            return None
        self._publish(compared)
        return compared.speedup if self.meter.counts else None

    def _keep_rows(self, should_stop: ShouldStop) -> None:
        if isinstance(self._conversation, NoModel) or not self._conversation.turns:
            return
        try:
            label = label_of(self._conversation.turns[0][0])
            self._conversation.keep_rows(label, should_stop=should_stop)
        except Exception as error:  # the thread's edge: the chat is only read again next time
            why = f"the rows of this chat are not kept: {describe(error)}"
            self._publish(events.SessionNotice(why))

    def _answer(self, text: str, begin: Callable[[], Iterator[Event]]) -> None:
        """Publish the events of a reply; an error ends this reply, not the chat.

        `text` is the turn to answer; "" if it is already in the conversation.
        """
        last: Event | None = None
        num_forgotten = self._conversation.num_forgotten
        try:
            for last in begin():
                self._publish(last)
                self.meter.record(last)
                if isinstance(last, TurnStarted):
                    self._refused = ""
                    if self._included:
                        self._included[-1] = True
                    if self._conversation.num_forgotten > num_forgotten:
                        self._publish(_forgotten(self._conversation.num_forgotten))
        except Exception as error:  # the thread's edge: an error becomes a row on the screen
            if last is None and text:
                self._refused = text
                self._publish(TurnStarted("user", text))
            ts = getattr(last, "ts", 0.0)
            self._publish(GenerationFailed(ts, describe(error), traceback.format_exc()))
            if last is None and isinstance(error, ContextLengthError):
                asked = text or self._conversation.turns[-1][0]
                fits = self._model.fits_alone(asked)
                self._publish(events.ContextFull(error.context_length, fits))


def _forgotten(num_turns: int) -> events.SessionNotice:
    turns = "turn no longer fits" if num_turns == 1 else "turns no longer fit"
    return events.SessionNotice(
        f"the oldest {num_turns} {turns} the context: the model no longer sees them"
    )


def _plainly(error: Exception) -> str:
    """Return the message for the user; that of a `ValueError` needs no type."""
    return str(error) if isinstance(error, ValueError) else describe(error)


def describe(error: BaseException) -> str:
    """Return the message for the user: our own errors as they are, others with their type."""
    if isinstance(error, MlxspecError):
        return str(error)
    return f"{type(error).__name__}: {error}"
