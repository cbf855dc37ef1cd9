"""How the events of a generation change the reply that it writes.

Each function applies one kind of event; `fold.apply` selects it. In a damaged trace any event may
be missing, so an event that needs a reply starts one if none is open.
"""

from collections.abc import Callable
from typing import Any

from mlxspec.trace.events import (
    CostMeasured,
    DrafterFailed,
    DraftProposed,
    DraftVerified,
    EmittedToken,
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


def _started(state: ChatState, event: GenerationStarted) -> None:
    state.phase, state.repeats_turn, state.draft = "busy", False, None
    state.target, state.drafter = event.target, event.drafter
    state.context_length = event.context_length
    reply = _open_reply(state)
    if reply.started is not None:  # the reply before never ended: start another message
        reply = Reply()
        state.messages.append(reply)
    reply.started = event
    reply.stats.add(event)
    state.baseline = state.baseline.before(reply)


def _kept(state: ChatState, event: TokensKept) -> None:
    reply = _open_reply(state)
    reply.kept = event
    reply.stats.add(event)
    reply.spans.extend(Span.of(token, 0, "") for token in event.emit if token.text)
    reply.tokens += [token.token for token in event.emit]


def _prefill(state: ChatState, event: PrefillProgress) -> None:
    reply = _open_reply(state)
    reply.prefill = event
    reply.stats.add(event)
    state.context = event.done


def _draft(state: ChatState, event: DraftProposed) -> None:
    _open_reply(state).stats.add(event)
    state.draft = event


def _verdict(state: ChatState, event: DraftVerified | PlainDecoded) -> None:
    reply, draft = _open_reply(state), state.draft
    state.draft = None
    reply.stats.add(event)
    # in a damaged trace the last draft may belong to another round
    fits = draft is not None and draft.r == event.r and isinstance(event, DraftVerified)
    round_ = Round(draft if fits else None, event)
    reply.rounds.append(round_)
    reply.pace.add(round_)
    pairs = zip(event.emit, round_.sources, strict=True)
    reply.spans.extend(Span.of(token, event.r, source) for token, source in pairs if token.text)
    state.context = event.context
    state.baseline = state.baseline.after_round(reply, state.context)
    _add_tokens(state, reply, event)


def _add_tokens(state: ChatState, reply: Reply, event: DraftVerified | PlainDecoded) -> None:
    num_kept = reply.stats.kept_tokens
    was_copy = reply.num_copied == len(reply.tokens) - num_kept
    reply.tokens += [token.token for token in event.emit]
    if was_copy:  # else it differs from every earlier reply already
        reply.num_copied = state.earlier.num_copied(reply.tokens, num_kept)


def _measured(state: ChatState, event: CostMeasured) -> None:
    state.baseline = state.baseline.measured(event, state.reply, state.context)


def _compared(state: ChatState, event: SpeedupMeasured) -> None:
    if state.reply is not None:
        compare(state.reply, event)


def _drafter_failed(state: ChatState, event: DrafterFailed) -> None:
    _open_reply(state).drafter_fault = event.message
    state.notices.append(
        f"the drafter {event.drafter} failed, so the model continues without it: {event.message}"
    )


def _finished(state: ChatState, event: GenerationFinished) -> None:
    reply = _open_reply(state)
    reply.stats.add(event)
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


def _failed(state: ChatState, event: GenerationFailed) -> None:
    reply = _open_reply(state)
    reply.stats.add(event)
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


REPLY_EVENTS: dict[type, Callable[[ChatState, Any], None]] = {
    GenerationStarted: _started,
    TokensKept: _kept,
    PrefillProgress: _prefill,
    DraftProposed: _draft,
    DraftVerified: _verdict,
    PlainDecoded: _verdict,
    DrafterFailed: _drafter_failed,
    GenerationFinished: _finished,
    GenerationFailed: _failed,
    CostMeasured: _measured,
    SpeedupMeasured: _compared,
}
