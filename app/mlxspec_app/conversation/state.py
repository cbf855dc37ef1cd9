"""What the screen shows, folded from events: plain data, no Textual, no MLX.

`ChatState.apply` is the only thing that changes a state. The same events give the same state
whether a model makes them now or a trace holds them, which is why a replay looks like the chat
that it recorded, and why the app can be tested without a model.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from mlxspec.trace.events import (
    CostMeasured,
    DrafterFailed,
    DraftProposed,
    DraftVerified,
    Event,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    PrefillProgress,
    TurnStarted,
)
from mlxspec_app.conversation.baseline import Baseline
from mlxspec_app.conversation.loading import LOADING
from mlxspec_app.conversation.messages import Message, Reply, Span
from mlxspec_app.conversation.rounds import Round
from mlxspec_app.conversation.session import (
    ChatCleared,
    ChatCut,
    ChatOpened,
    ContextFull,
    LoadFailed,
    LoadProgress,
    ModelChoice,
    ProofFinished,
    ProofProgress,
    ReplyDiscarded,
    SessionEvent,
    SessionNotice,
    TurnsForgotten,
)

Phase = Literal["loading", "ready", "busy", "failed"]
"""`loading`: the models are not there yet; `ready`: a message can be sent; `busy`: a reply is
being written; `failed`: there is no model."""


@dataclass
class ChatState:
    """All that is known about a session.

    Attributes:
        phase: What the session is doing.
        target: Name of the target model, or "".
        drafter: Name of the drafter, or "".
        loading: The last progress of loading, while it loads.
        messages: The conversation.
        notices: Things to tell the user, oldest first.
        choice: The models that are loaded or being loaded; None where no others can be.
        load_failure: Why other models could not be loaded, until something else is done.
        error: Why there is no model, or "".
        queue: Messages typed while the session could not take them.
        context: Tokens in the cache.
        context_length: Tokens the model can hold, or 0 while that is not known.
        is_full: Whether the last turn was not answered because the context is full.
        system: The system prompt that was set, or "".
        baseline: What plain decoding would give, and whether drafting falls short of it.
    """

    phase: Phase = "loading"
    target: str = ""
    drafter: str = ""
    loading: LoadProgress | None = None
    messages: list[Message] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    choice: ModelChoice | None = None
    load_failure: LoadFailed | None = None
    error: str = ""
    queue: list[str] = field(default_factory=list)
    context: int = 0
    context_length: int = 0
    is_full: bool = False
    system: str = ""
    baseline: Baseline = field(default_factory=Baseline)
    _draft: DraftProposed | None = field(default=None, repr=False)
    _repeats_turn: bool = field(default=False, repr=False)

    @property
    def reply(self) -> Reply | None:
        """The last reply, finished or not."""
        return next((m for m in reversed(self.messages) if isinstance(m, Reply)), None)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was said yet; a system prompt does not count."""
        return all(message.role == "system" for message in self.messages)

    @property
    def last_round(self) -> Round | None:
        """The last finished round of the last reply."""
        reply = self.reply
        return reply.rounds[-1] if reply is not None and reply.rounds else None

    def apply(self, event: Event | SessionEvent) -> None:
        """Change the state as the event says; an event out of place changes what it can."""
        _APPLY[type(event)](self, event)

    def _open_reply(self) -> Reply:
        last = self.messages[-1] if self.messages else None
        if isinstance(last, Reply) and not last.is_finished:
            return last
        reply = Reply()
        self.messages.append(reply)
        return reply


def fold(events: Iterable[Event | SessionEvent], state: ChatState | None = None) -> ChatState:
    """Return the state after the events, starting from `state`, which is changed, or afresh."""
    state = ChatState() if state is None else state
    for event in events:
        state.apply(event)
    return state


def _notice(state: ChatState, event: SessionNotice) -> None:
    state.notices.append(event.message)


def _discard(state: ChatState, event: ReplyDiscarded) -> None:
    if state.messages and isinstance(state.messages[-1], Reply):
        state.messages.pop()
    state._repeats_turn = True
    state.phase = "busy"


def _clear(state: ChatState, event: ChatCleared) -> None:
    _begin_chat(state, [])  # in which the system prompt goes on


def _open_chat(state: ChatState, event: ChatOpened) -> None:
    state.system = event.system or ""
    _begin_chat(state, list(event.messages))


def _begin_chat(state: ChatState, messages: list[Message]) -> None:
    prompt = [Message("system", [Span(state.system)])] if state.system else []
    state.messages[:] = [*prompt, *messages]
    state.notices.clear()
    state.context = 0
    state.phase, state.is_full = "ready", False
    state._draft, state._repeats_turn = None, False


def _cut(state: ChatState, event: ChatCut) -> None:
    turns = [place for place, m in enumerate(state.messages) if m.role == "user"]
    if event.num_turns < len(turns):
        del state.messages[turns[event.num_turns] :]
    state._draft, state._repeats_turn = None, False


def _full(state: ChatState, event: ContextFull) -> None:
    state.is_full = True
    state.context_length = event.context_length or state.context_length


def _forgotten(state: ChatState, event: TurnsForgotten) -> None:
    turns = "turn no longer fits" if event.num_turns == 1 else "turns no longer fit"
    state.notices.append(
        f"the oldest {event.num_turns} {turns} the context: the model does not see them any more"
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


def _turn(state: ChatState, event: TurnStarted) -> None:
    if event.role == "user":
        state.phase, state.is_full, state.load_failure = "busy", False, None
        state.notices.clear()  # they were read, or are of no use any more
    last = state.messages[-1] if state.messages else None
    if event.role == "system":
        state.system = event.text
        if last is not None and last.role == "system":
            state.messages.pop()  # nothing was said under it
    if state._repeats_turn and last is not None and last.role == event.role:
        return  # a regenerated turn may say again what is on the screen
    state.messages.append(Message(event.role, [Span(event.text)]))


def _started(state: ChatState, event: GenerationStarted) -> None:
    state.phase, state._repeats_turn, state._draft = "busy", False, None
    state.target, state.drafter = event.target, event.drafter
    state.context_length = event.context_length
    reply = state._open_reply()
    if reply.started is not None:  # the reply before never ended; leave it as it stands
        reply = Reply()
        state.messages.append(reply)
    reply.started = event
    reply.stats.add(event)
    state.baseline = state.baseline.before(reply)


def _prefill(state: ChatState, event: PrefillProgress) -> None:
    reply = state._open_reply()
    reply.prefill = event
    reply.stats.add(event)
    state.context = event.done


def _draft(state: ChatState, event: DraftProposed) -> None:
    state._open_reply().stats.add(event)
    state._draft = event


def _verdict(state: ChatState, event: DraftVerified | PlainDecoded) -> None:
    reply, draft = state._open_reply(), state._draft
    state._draft = None
    reply.stats.add(event)
    fits = draft is not None and draft.r == event.r and isinstance(event, DraftVerified)
    round_ = Round(draft if fits else None, event)
    reply.rounds.append(round_)
    reply.pace.add(round_)
    pairs = zip(event.emit, round_.sources, strict=True)
    reply.spans.extend(Span.of(token, event.r, source) for token, source in pairs if token.text)
    state.context = event.context
    state.baseline = state.baseline.after_round(reply)


def _measured(state: ChatState, event: CostMeasured) -> None:
    state.baseline = state.baseline.measured(event, state.reply)


def _spec_off(state: ChatState, event: DrafterFailed) -> None:
    state._open_reply().drafter_fault = event.message
    state.notices.append(f"the drafter {event.drafter} failed, so no drafts: {event.message}")


def _finished(state: ChatState, event: GenerationFinished) -> None:
    reply = state._open_reply()
    reply.stats.add(event)
    reply.reason = event.reason
    if event.text:
        last = reply.rounds[-1].verdict if reply.rounds else None
        kind = last.emit[-1].kind if last is not None and last.emit else "plain"
        reply.spans.append(Span(event.text, kind, last.r if last is not None else 0))
    memory = event.stats.get("peak_memory_gb")
    if isinstance(memory, int | float) and 0 < memory < 1e6:
        reply.peak_memory = float(memory)
    state.phase = "ready"


def _failed(state: ChatState, event: GenerationFailed) -> None:
    reply = state._open_reply()
    reply.stats.add(event)
    reply.error, reply.traceback = event.message or "the reply broke off", event.traceback
    state.phase, state._repeats_turn = "ready", False


_APPLY: dict[type, Callable[[ChatState, Any], None]] = {
    **LOADING,
    SessionNotice: _notice,
    ReplyDiscarded: _discard,
    ChatCleared: _clear,
    ChatOpened: _open_chat,
    ChatCut: _cut,
    ContextFull: _full,
    TurnsForgotten: _forgotten,
    ProofProgress: _proving,
    ProofFinished: _proven,
    TurnStarted: _turn,
    GenerationStarted: _started,
    PrefillProgress: _prefill,
    DraftProposed: _draft,
    DraftVerified: _verdict,
    PlainDecoded: _verdict,
    DrafterFailed: _spec_off,
    GenerationFinished: _finished,
    GenerationFailed: _failed,
    CostMeasured: _measured,
}
