"""How events and orders change the state of a screen.

An event comes from the session or from a recording. An order changes the state before the session
reports. The result depends neither on the origin nor on the clock. In a damaged trace any event may
be missing: one that does not fit the state changes only what it can, and one that needs a reply
starts one if none is open.
"""

from collections.abc import Iterable

from mlxspec.trace import events as trace
from mlxspec_app.conversation import events
from mlxspec_app.conversation.messages import OWN_PROMPT, Message, Reply, Span, num_copied
from mlxspec_app.conversation.orders import Awaited, Order, Stop
from mlxspec_app.conversation.rounds import Round
from mlxspec_app.conversation.speeds import timed
from mlxspec_app.conversation.state import ChatState

_MOST_COMPARED = 64  # replies; a drafter forgets old text too


def fold(happened: Iterable[events.AnyEvent], state: ChatState | None = None) -> ChatState:
    """Return the state after some events; a given `state` is changed in place."""
    state = ChatState() if state is None else state
    for event in happened:
        apply(state, event)
    return state


def note_order(state: ChatState, order: Order) -> None:
    """Change the state by an order: until its first event comes, no message can be sent."""
    if isinstance(order, Stop):
        state.is_stopping = True
    elif isinstance(order, Awaited):
        state.wait()


def apply(state: ChatState, event: events.AnyEvent) -> None:
    """Change the state by an event."""
    match event:
        case events.SessionEvent():
            _apply_session_event(state, event)
        case trace.TurnStarted("system", text):
            _set_system(state, text)
        case trace.TurnStarted():
            _begin_turn(state, event)
        case trace.CostMeasured():
            state.cost = event
            if state.reply is not None:
                state.reply.cost = event
        case trace.SpeedupMeasured():
            if state.reply is not None:
                state.reply.measured, state.reply.num_copied = event, event.copied
        case _:
            _apply_to_reply(state, event)


def _apply_session_event(state: ChatState, event: events.SessionEvent) -> None:
    match event:
        case events.LoadProgress():
            state.loading = event
        case events.TableProgress():
            state.table = event if event.share is not None else None
        case events.SessionNotice(message, is_trouble):
            (state.notices if is_trouble else state.news).append(message)
        case events.OrderRefused(message):
            state.phase = "ready"
            state.notices.append(message)
        case events.ReplyDiscarded():
            _discard(state)
        case events.ChatCleared():
            _begin_chat(state, ())  # the system prompt also applies to the new chat
        case events.ChatOpened():
            state.system = event.system or ""
            _begin_chat(state, event.messages)
        case events.ChatCut(num_turns):
            _cut(state, num_turns)
        case events.ContextFull():
            state.is_full = True
            state.context_length = event.context_length or state.context_length
        case events.ProofProgress() | events.ProofFinished():
            _prove(state, event)
        case events.AlternativesFound():
            if state.phase == "busy":  # the result belongs to the token in view, not to the chat
                state.phase = "ready"
        case events.RaceProgress():
            state.phase = "busy"
        case events.RaceFinished(is_stopped):
            state.phase = "ready"
            state.news += ["the race was stopped; the chat is as it was"] * is_stopped
        case _:
            state.loading = None
            _load(state, event)


def _load(state: ChatState, event: events.SessionEvent) -> None:
    match event:
        case events.LoadFailed():
            state.load_failure = event
        case events.SessionReady():
            state.phase = "ready"
        case events.SessionFailed():
            state.phase, state.error = "failed", event.message
            state.choice = None if event.is_over else state.choice
        case events.SessionOpening(target, drafter, choice):
            if state.phase != "loading":  # else the earlier models return after a failure
                state.load_failure = None
            state.phase, state.error = "loading", ""
            state.target, state.drafter, state.choice = target, drafter, choice
            state.cost = None
            state.earlier = ()  # another drafter has seen no reply


# ---- messages --------------------------------------------------------------------------------


def _begin_turn(state: ChatState, event: trace.TurnStarted) -> None:
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


def _prove(state: ChatState, event: events.ProofProgress | events.ProofFinished) -> None:
    reply, is_over = state.reply, isinstance(event, events.ProofFinished)
    state.phase = "ready" if is_over or reply is None else "busy"
    if reply is None:
        return
    if isinstance(event, events.ProofProgress):
        reply.proof = f"the model alone: {event.done} of {event.total} tokens are the same"
        return
    proof = event.proof
    is_known = proof.is_identical or proof.difference is not None
    reply.proof, reply.is_proven = proof.describe(), proof.is_identical if is_known else None


# ---- the open reply --------------------------------------------------------------------------


def _apply_to_reply(state: ChatState, event: trace.Event) -> None:
    reply = state.messages[-1] if state.messages else None
    is_start = isinstance(event, trace.GenerationStarted)
    if (
        not isinstance(reply, Reply)
        or reply.is_finished
        or (is_start and reply.started is not None)  # the reply before never ended
    ):
        reply = Reply()
        state.messages.append(reply)
    reply.stats.add(event)
    match event:
        case trace.GenerationStarted():
            state.phase, state.repeats_turn, state.draft = "busy", False, None
            state.target, state.drafter = event.target, event.drafter
            state.context_length = event.context_length
            reply.started, reply.cost = event, state.cost
            state.speeds = state.speeds.of(event)
        case trace.TokensKept():
            reply.kept = event
            reply.spans.extend(Span.of(token, 0, "") for token in event.emit if token.text)
            reply.tokens += [token.token for token in event.emit]
        case trace.PrefillProgress():
            reply.prefill, state.context = event, event.done
            reply.earlier = state.speeds.costs_at(event.total)
        case trace.DraftProposed():
            state.draft = event
        case trace.DraftVerified() | trace.PlainDecoded():
            _add_round(state, reply, event)
        case trace.DrafterFailed(drafter=drafter, message=why):
            reply.drafter_fault = why
            state.notices.append(
                f"the drafter {drafter} failed, so the model continues without it: {why}"
            )
        case trace.GenerationFinished():
            _finish(state, reply, event)
        case trace.GenerationFailed():
            reply.error, reply.traceback = event.message or "the reply was cut off", event.traceback
            state.phase, state.repeats_turn = "ready", False


def _add_round(
    state: ChatState, reply: Reply, event: trace.DraftVerified | trace.PlainDecoded
) -> None:
    draft, state.draft = state.draft, None
    # in a damaged trace the last draft may belong to another round
    fits = draft is not None and draft.r == event.r and isinstance(event, trace.DraftVerified)
    round_ = Round(draft if fits else None, event)
    reply.rounds.append(round_)
    reply.pace.add(round_)
    pairs = zip(event.emit, round_.sources, strict=True)
    reply.spans.extend(Span.of(token, event.r, source) for token, source in pairs if token.text)
    state.context = event.context
    if state.has_own_forwards:
        before_s = reply.pace.ends[-2] if len(reply.rounds) > 1 else reply.stats.prefill_s
        reply.timed.append(timed(round_, 1e3 * (reply.pace.ends[-1] - before_s)))
    num_kept = reply.stats.kept_tokens
    was_copy = reply.num_copied == len(reply.tokens) - num_kept
    reply.tokens += [token.token for token in event.emit]
    if was_copy:  # else it differs from every earlier reply already
        reply.num_copied = num_copied(reply.tokens, state.earlier, num_kept)


def _finish(state: ChatState, reply: Reply, event: trace.GenerationFinished) -> None:
    reply.reason = event.reason
    if event.text:
        last = reply.rounds[-1].verdict if reply.rounds else None
        emitted = last.emit if last is not None else ()
        token = emitted[-1] if emitted else trace.EmittedToken(-1, "", "plain")
        r = last.r if last is not None else 0
        reply.spans.append(Span(event.text, token.kind, r, channel=token.channel))
    # the stats of a trace may hold anything: show a plausible figure or none
    memory = event.stats.get("peak_memory_gb")
    if isinstance(memory, int | float) and 0 < memory < 1e6:
        reply.peak_memory = float(memory)
    state.phase = "ready"
    state.speeds = state.speeds.after(reply, state.context)
    state.earlier = (*state.earlier, tuple(reply.tokens))[-_MOST_COMPARED:]
