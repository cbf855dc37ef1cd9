"""How the events of a generation change the reply that it writes.

In a damaged trace any event may be missing, so an event that needs a reply starts one if none is
open.
"""

from mlxspec.trace.events import (
    CostMeasured,
    DrafterFailed,
    DraftProposed,
    DraftVerified,
    EmittedToken,
    Event,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    PrefillProgress,
    SpeedupMeasured,
    TokensKept,
)
from mlxspec_app.conversation.baseline import compare
from mlxspec_app.conversation.messages import Reply, Span
from mlxspec_app.conversation.rounds import Round
from mlxspec_app.conversation.state import ChatState


def apply_to_reply(state: ChatState, event: Event) -> None:
    """Change the open reply, or the last one by a measurement after it."""
    match event:
        case CostMeasured():
            state.baseline = state.baseline.measured(event, state.reply, state.context)
            return
        case SpeedupMeasured():
            if state.reply is not None:
                compare(state.reply, event)
            return
    reply = _open_reply(state)
    if isinstance(event, GenerationStarted) and reply.started is not None:
        reply = Reply()  # the reply before never ended
        state.messages.append(reply)
    reply.stats.add(event)
    match event:
        case GenerationStarted():
            _start(state, reply, event)
        case TokensKept():
            reply.kept = event
            reply.spans.extend(Span.of(token, 0, "") for token in event.emit if token.text)
            reply.tokens += [token.token for token in event.emit]
        case PrefillProgress():
            reply.prefill, state.context = event, event.done
        case DraftProposed():
            state.draft = event
        case DraftVerified() | PlainDecoded():
            _add_round(state, reply, event)
        case DrafterFailed(drafter=drafter, message=why):
            reply.drafter_fault = why
            state.notices.append(
                f"the drafter {drafter} failed, so the model continues without it: {why}"
            )
        case GenerationFinished():
            _finish(state, reply, event)
        case GenerationFailed():
            reply.error, reply.traceback = event.message or "the reply was cut off", event.traceback
            state.phase, state.repeats_turn = "ready", False


def _open_reply(state: ChatState) -> Reply:
    """Return the unfinished reply; start one if there is none."""
    last = state.messages[-1] if state.messages else None
    if isinstance(last, Reply) and not last.is_finished:
        return last
    reply = Reply()
    state.messages.append(reply)
    return reply


def _start(state: ChatState, reply: Reply, event: GenerationStarted) -> None:
    state.phase, state.repeats_turn, state.draft = "busy", False, None
    state.target, state.drafter = event.target, event.drafter
    state.context_length = event.context_length
    state.baseline = state.baseline.before(reply)
    reply.started = event


def _add_round(state: ChatState, reply: Reply, event: DraftVerified | PlainDecoded) -> None:
    draft, state.draft = state.draft, None
    # in a damaged trace the last draft may belong to another round
    fits = draft is not None and draft.r == event.r and isinstance(event, DraftVerified)
    round_ = Round(draft if fits else None, event)
    reply.rounds.append(round_)
    reply.pace.add(round_)
    pairs = zip(event.emit, round_.sources, strict=True)
    reply.spans.extend(Span.of(token, event.r, source) for token, source in pairs if token.text)
    state.context = event.context
    state.baseline = state.baseline.after_round(reply, state.context)
    num_kept = reply.stats.kept_tokens
    was_copy = reply.num_copied == len(reply.tokens) - num_kept
    reply.tokens += [token.token for token in event.emit]
    if was_copy:  # else it differs from every earlier reply already
        reply.num_copied = state.earlier.num_copied(reply.tokens, num_kept)


def _finish(state: ChatState, reply: Reply, event: GenerationFinished) -> None:
    reply.reason = event.reason
    if event.text:
        last = reply.rounds[-1].verdict if reply.rounds else None
        token = last.emit[-1] if last is not None and last.emit else EmittedToken(-1, "", "plain")
        r = last.r if last is not None else 0
        reply.spans.append(Span(event.text, token.kind, r, channel=token.channel))
    # the stats of a trace may hold anything: show a plausible figure or none
    memory = event.stats.get("peak_memory_gb")
    if isinstance(memory, int | float) and 0 < memory < 1e6:
        reply.peak_memory = float(memory)
    state.phase = "ready"
    state.earlier = state.earlier.after(reply.tokens)
