"""How events and orders change the state of a screen.

An event comes from the session or from a recording. An order changes the state before the session
reports. The result depends neither on the origin nor on the clock.
"""

from collections.abc import Iterable

from mlxspec.trace.events import TurnStarted
from mlxspec_app.conversation.baseline import Baseline
from mlxspec_app.conversation.events import (
    AlternativesFound,
    AnyEvent,
    ChatCleared,
    ChatCut,
    ChatOpened,
    ContextFull,
    LoadFailed,
    LoadProgress,
    ProofFinished,
    ProofProgress,
    RaceFinished,
    RaceProgress,
    ReplyDiscarded,
    SessionFailed,
    SessionNotice,
    SessionOpening,
    SessionReady,
    TurnsForgotten,
)
from mlxspec_app.conversation.messages import OWN_PROMPT, EarlierReplies, Message, Reply, Span
from mlxspec_app.conversation.orders import Awaited, Order, Stop
from mlxspec_app.conversation.reply_events import apply_to_reply
from mlxspec_app.conversation.state import ChatState

_RACE = "race:"  # starts the notice about a run that is being recorded


def fold(events: Iterable[AnyEvent], state: ChatState | None = None) -> ChatState:
    """Return the state after the events; a given `state` is changed in place."""
    state = ChatState() if state is None else state
    for event in events:
        apply(state, event)
    return state


def note_order(state: ChatState, order: Order) -> None:
    """Change the state by an order: until its first event comes, no message can be sent."""
    if isinstance(order, Stop):
        state.is_stopping = True
    elif isinstance(order, Awaited):
        state.wait()


def apply(state: ChatState, event: AnyEvent) -> None:
    """Change the state by an event; one that does not fit the state changes only what it can."""
    match event:
        case TurnStarted():
            _begin_turn(state, event)
        case SessionOpening() | LoadProgress() | SessionReady() | LoadFailed() | SessionFailed():
            _load(state, event)
        case SessionNotice(message, is_trouble):
            (state.notices if is_trouble else state.news).append(message)
        case ReplyDiscarded():
            _discard(state)
        case ChatCleared():
            _begin_chat(state, ())  # the system prompt also applies to the new chat
        case ChatOpened():
            state.system = event.system or ""
            _begin_chat(state, event.messages)
        case ChatCut(num_turns):
            _cut(state, num_turns)
        case ContextFull():
            state.is_full = True
            state.context_length = event.context_length or state.context_length
        case TurnsForgotten(num_turns):
            turns = "turn no longer fits" if num_turns == 1 else "turns no longer fit"
            state.notices.append(
                f"the oldest {num_turns} {turns} the context: the model no longer sees them"
            )
        case ProofProgress() | ProofFinished():
            _prove(state, event)
        case AlternativesFound():
            if state.phase == "busy":  # the result belongs to the token in view, not to the chat
                state.phase = "ready"
        case RaceProgress() | RaceFinished():
            _race(state, event)
        case _:
            apply_to_reply(state, event)


def _load(
    state: ChatState,
    event: SessionOpening | LoadProgress | SessionReady | LoadFailed | SessionFailed,
) -> None:
    match event:
        case LoadProgress():
            state.loading = event
            return
        case LoadFailed():
            state.load_failure = event
        case SessionReady():
            state.phase = "ready"
        case SessionFailed():
            state.phase, state.error = "failed", event.message
            state.choice = None if event.is_over else state.choice
        case SessionOpening(target, drafter, choice):
            if state.phase != "loading":  # else the earlier models return after a failure
                state.load_failure = None
            state.phase, state.error = "loading", ""
            is_same_target = choice is not None and choice.has_same_target(state.choice)
            state.target, state.drafter, state.choice = target, drafter, choice
            state.baseline = state.baseline.afresh() if is_same_target else Baseline()
            state.earlier = EarlierReplies()  # another drafter has seen no reply
    state.loading = None


def _begin_turn(state: ChatState, event: TurnStarted) -> None:
    if event.role == "system":
        _set_system(state, event.text)
        return
    if event.role == "user":
        state.phase, state.is_full, state.load_failure = "busy", False, None
        state.is_stopping = False
        state.notices.clear()  # notices stay until the next message
        state.news.clear()
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


def _discard(state: ChatState) -> None:
    last = _index_of_last(state)
    if last is not None and isinstance(state.messages[last], Reply):
        del state.messages[last]
        state.context = _context_of(state.messages)
    state.phase, state.repeats_turn = "busy", True


def _index_of_last(state: ChatState) -> int | None:
    """Return the index of the last message; a system prompt for the next one may follow it."""
    indices = reversed(range(len(state.messages)))
    return next((index for index in indices if state.messages[index].role != "system"), None)


def _begin_chat(state: ChatState, messages: Iterable[Message]) -> None:
    prompt = [Message("system", [Span(state.system)])] if state.system else []
    state.messages[:] = [*prompt, *messages]
    state.notices.clear()
    state.news.clear()
    state.context = _context_of(state.messages)
    state.phase, state.is_full = "ready", False
    state.draft, state.repeats_turn = None, False


def _cut(state: ChatState, num_turns: int) -> None:
    turns = [index for index, m in enumerate(state.messages) if m.role == "user"]
    if num_turns < len(turns):
        del state.messages[turns[num_turns] :]
        state.context = _context_of(state.messages)
    state.draft, state.repeats_turn = None, False


def _context_of(messages: list[Message]) -> int:
    """Return the tokens of prompt and reply up to the last reply with figures, or 0."""
    for message in reversed(messages):
        if isinstance(message, Reply) and message.rounds:
            return message.rounds[-1].verdict.context
        if isinstance(message, Reply) and message.stats.prompt_tokens:
            return message.stats.prompt_tokens + message.stats.generated_tokens
    return 0


def _prove(state: ChatState, event: ProofProgress | ProofFinished) -> None:
    reply = state.reply
    if isinstance(event, ProofProgress):
        if reply is not None:
            state.phase = "busy"
            reply.proof = f"decoding plainly: {event.done} of {event.total} tokens are the same"
        return
    state.phase = "ready"
    proof = event.proof
    if proof is None or reply is None:
        state.notices.append(event.message)
        return
    is_known = proof.is_identical or proof.difference is not None
    reply.proof, reply.is_proven = proof.describe(), proof.is_identical if is_known else None


def _race(state: ChatState, event: RaceProgress | RaceFinished) -> None:
    state.news[:] = [news for news in state.news if not news.startswith(_RACE)]
    if isinstance(event, RaceProgress):
        state.phase = "busy"
        state.news.append(f"{_RACE} recording the run with drafter {event.drafter} · Esc stops")
        return
    state.phase = "ready"
    if event.message:
        state.notices.append(event.message)
