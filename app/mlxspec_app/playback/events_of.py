"""Turns a chat state back into events, so that the conversation on the screen can be replayed.

A state has every round of every reply, so a fold of these events gives the same conversation. Two
things are lost: the progress of a prefill, of which a state has only the last event, and a draft
that waits for its verdict.
"""

from collections.abc import Iterator

from mlxspec.trace.events import (
    CostMeasured,
    DrafterFailed,
    Event,
    GenerationFailed,
    GenerationFinished,
    TurnStarted,
)
from mlxspec_app.conversation.messages import OWN_PROMPT, Message, Reply
from mlxspec_app.conversation.state import ChatState


def events_of(state: ChatState) -> list[Event]:
    """Return events that fold to the conversation of a state."""
    events: list[Event] = []
    cost: CostMeasured | None = None
    for message in state.messages:
        events += _events_of_message(message)
        # Replies share a measurement until the next one: its event must occur only once.
        if isinstance(message, Reply) and message.cost is not None and message.cost is not cost:
            cost = message.cost
            events.append(cost)
        if isinstance(message, Reply) and message.measured is not None:
            events.append(message.measured)
    return events


def _events_of_message(message: Message) -> Iterator[Event]:
    if not isinstance(message, Reply):
        is_own = message.role == "system" and message.text == OWN_PROMPT
        yield TurnStarted(message.role, "" if is_own else message.text)
        return
    parts: list[Event | None] = [message.started, message.kept, message.prefill]
    for round_ in message.rounds:
        parts += [round_.draft, round_.verdict]
    yield from (part for part in parts if part is not None)
    end_s = message.stats.total_s
    if message.drafter_fault and message.started is not None:
        yield DrafterFailed(end_s, message.started.drafter, message.drafter_fault)
    if message.reason is not None:
        memory = message.peak_memory
        stats = {} if memory is None else {"peak_memory_gb": memory}
        # the end of a reply may release text that came with no token
        text = message.text[sum(len(token.text) for token in message.emitted) :]
        yield GenerationFinished(end_s, message.reason, text, stats)
    if message.error:
        yield GenerationFailed(end_s, message.error, message.traceback)
