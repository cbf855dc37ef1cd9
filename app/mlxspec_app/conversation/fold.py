"""How events and orders change the state of a screen: nothing else changes a `ChatState`.

An event comes from the session, from a recording, or from the screen. An order changes the state
before the session reports. The result depends neither on the origin nor on the clock.
"""

from collections.abc import Callable, Iterable
from typing import Any

from mlxspec.trace.events import Event, TurnStarted
from mlxspec_app.conversation.baseline import Baseline
from mlxspec_app.conversation.messages import OWN_PROMPT, EarlierReplies, Message, Reply, Span
from mlxspec_app.conversation.orders import Awaited, Order, Stop
from mlxspec_app.conversation.reply_events import REPLY_EVENTS
from mlxspec_app.conversation.session import (
    AlternativesFound,
    ChatCleared,
    ChatCut,
    ChatNotFound,
    ChatOpened,
    ChatSought,
    ContextFull,
    LoadFailed,
    LoadProgress,
    MessageQueued,
    ProofFinished,
    ProofProgress,
    QueuedSent,
    QueueEmptied,
    RaceFinished,
    RaceProgress,
    ReplyDiscarded,
    ScreenEvent,
    SessionEvent,
    SessionFailed,
    SessionNotice,
    SessionOpening,
    SessionReady,
    TurnsForgotten,
)
from mlxspec_app.conversation.state import ChatState

AnyEvent = Event | SessionEvent | ScreenEvent


_RACE = "race:"  # starts the notice about a run that is being recorded


def apply(state: ChatState, event: AnyEvent) -> None:
    """Change the state by an event; one that does not fit the state changes only what it can."""
    _APPLY[type(event)](state, event)


def fold(events: Iterable[AnyEvent], state: ChatState | None = None) -> ChatState:
    """Return the state after the events; a given `state` is changed in place."""
    state = ChatState() if state is None else state
    for event in events:
        apply(state, event)
    return state


# ---- loading -------------------------------------------------------------------------------


def _open(state: ChatState, event: SessionOpening) -> None:
    if state.phase != "loading":  # else the earlier models return after a failure
        state.load_failure = None
    state.phase, state.error = "loading", ""
    is_same_target = event.choice is not None and event.choice.has_same_target(state.choice)
    state.target, state.drafter, state.choice = event.target, event.drafter, event.choice
    state.baseline = state.baseline.afresh() if is_same_target else Baseline()
    state.earlier = EarlierReplies()  # another drafter has seen no reply


def _progress(state: ChatState, event: LoadProgress) -> None:
    state.loading = event


def _ready(state: ChatState, event: SessionReady) -> None:
    state.phase, state.loading = "ready", None


def _fail_load(state: ChatState, event: LoadFailed) -> None:
    state.load_failure, state.loading = event, None


def _fail_session(state: ChatState, event: SessionFailed) -> None:
    state.phase, state.loading, state.error = "failed", None, event.message
    state.choice = None if event.is_over else state.choice


# ---- orders, and events of the screen -------------------------------------------------------


def note_order(state: ChatState, order: Order) -> None:
    """Change the state by an order: until its first event comes, no message can be sent."""
    if isinstance(order, Stop):
        state.is_stopping = True
    elif isinstance(order, Awaited):
        _wait(state)


def _wait(state: ChatState, event: ChatSought | None = None) -> None:
    if state.phase != "loading":  # the session reports when that is over
        state.phase = "busy"
    state.is_stopping = False


def _not_found(state: ChatState, event: ChatNotFound) -> None:
    if state.phase == "busy":
        state.phase = event.phase


def _queue(state: ChatState, event: MessageQueued) -> None:
    state.queue.append(event.text)


def _send_queued(state: ChatState, event: QueuedSent) -> None:
    del state.queue[:1]


def _empty_queue(state: ChatState, event: QueueEmptied) -> None:
    state.queue.clear()


# ---- the conversation ----------------------------------------------------------------------


def _notice(state: ChatState, event: SessionNotice) -> None:
    (state.notices if event.is_trouble else state.news).append(event.message)


def _discard(state: ChatState, event: ReplyDiscarded) -> None:
    last = _index_of_last(state)
    if last is not None and isinstance(state.messages[last], Reply):
        del state.messages[last]
        state.context = _context_of(state.messages)
    state.repeats_turn = True
    state.phase = "busy"


def _index_of_last(state: ChatState) -> int | None:
    """Return the index of the last message; a system prompt for the next one may follow it."""
    indices = reversed(range(len(state.messages)))
    return next((index for index in indices if state.messages[index].role != "system"), None)


def _clear(state: ChatState, event: ChatCleared) -> None:
    _begin_chat(state, [])  # the system prompt also applies to the new chat


def _open_chat(state: ChatState, event: ChatOpened) -> None:
    state.system = event.system or ""
    _begin_chat(state, list(event.messages))


def _begin_chat(state: ChatState, messages: list[Message]) -> None:
    prompt = [Message("system", [Span(state.system)])] if state.system else []
    state.messages[:] = [*prompt, *messages]
    state.notices.clear()
    state.news.clear()
    state.context = _context_of(state.messages)
    state.phase, state.is_full = "ready", False
    state.draft, state.repeats_turn = None, False


def _context_of(messages: list[Message]) -> int:
    """Return the tokens of prompt and reply up to the last reply with figures, or 0."""
    for message in reversed(messages):
        if isinstance(message, Reply) and message.rounds:
            return message.rounds[-1].verdict.context
        if isinstance(message, Reply) and message.stats.prompt_tokens:
            return message.stats.prompt_tokens + message.stats.generated_tokens
    return 0


def _cut(state: ChatState, event: ChatCut) -> None:
    turns = [index for index, m in enumerate(state.messages) if m.role == "user"]
    if event.num_turns < len(turns):
        del state.messages[turns[event.num_turns] :]
        state.context = _context_of(state.messages)
    state.draft, state.repeats_turn = None, False


def _full(state: ChatState, event: ContextFull) -> None:
    state.is_full = True
    state.context_length = event.context_length or state.context_length


def _forgotten(state: ChatState, event: TurnsForgotten) -> None:
    turns = "turn no longer fits" if event.num_turns == 1 else "turns no longer fit"
    state.notices.append(
        f"the oldest {event.num_turns} {turns} the context: the model no longer sees them"
    )


def _proving(state: ChatState, event: ProofProgress) -> None:
    if state.reply is not None:
        state.phase = "busy"
        state.reply.proof = f"decoding plainly: {event.done} of {event.total} tokens are the same"


def _proven(state: ChatState, event: ProofFinished) -> None:
    state.phase = "ready"
    if event.proof is None or state.reply is None:
        state.notices.append(event.message)
        return
    proof = event.proof
    is_known = proof.is_identical or proof.difference is not None
    state.reply.proof = proof.describe()
    state.reply.is_proven = proof.is_identical if is_known else None


def _alternatives(state: ChatState, event: AlternativesFound) -> None:
    if state.phase == "busy":  # the result belongs to the token in view, not to the chat
        state.phase = "ready"


def _racing(state: ChatState, event: RaceProgress) -> None:
    state.phase = "busy"
    _drop_race(state)
    state.news.append(f"{_RACE} recording the run with drafter {event.drafter} · Esc stops")


def _raced(state: ChatState, event: RaceFinished) -> None:
    state.phase = "ready"
    _drop_race(state)
    if event.message:
        state.notices.append(event.message)


def _drop_race(state: ChatState) -> None:
    state.news[:] = [news for news in state.news if not news.startswith(_RACE)]


def _turn(state: ChatState, event: TurnStarted) -> None:
    if event.role == "user":
        state.phase, state.is_full, state.load_failure = "busy", False, None
        state.is_stopping = False
        state.notices.clear()  # notices stay until the next message
        state.news.clear()
    if event.role == "system":
        _set_system(state, event.text)
        return
    last = _index_of_last(state)
    if state.repeats_turn and last is not None and state.messages[last].role == event.role:
        return  # the session sends the turn of a regenerated reply again
    state.messages.append(Message(event.role, [Span(event.text)]))


def _set_system(state: ChatState, text: str) -> None:
    state.system = text
    if state.messages and state.messages[-1].role == "system":
        state.messages.pop()  # no message used it yet
    prompts = (message.text for message in reversed(state.messages) if message.role == "system")
    if text or next(prompts, OWN_PROMPT) != OWN_PROMPT:  # else it is the model's own already
        state.messages.append(Message("system", [Span(text or OWN_PROMPT)]))


_APPLY: dict[type, Callable[[ChatState, Any], None]] = {
    SessionOpening: _open,
    LoadProgress: _progress,
    SessionReady: _ready,
    LoadFailed: _fail_load,
    SessionFailed: _fail_session,
    ChatSought: _wait,
    ChatNotFound: _not_found,
    MessageQueued: _queue,
    QueuedSent: _send_queued,
    QueueEmptied: _empty_queue,
    SessionNotice: _notice,
    ReplyDiscarded: _discard,
    ChatCleared: _clear,
    ChatOpened: _open_chat,
    ChatCut: _cut,
    ContextFull: _full,
    TurnsForgotten: _forgotten,
    ProofProgress: _proving,
    ProofFinished: _proven,
    AlternativesFound: _alternatives,
    RaceProgress: _racing,
    RaceFinished: _raced,
    TurnStarted: _turn,
    **REPLY_EVENTS,
}
