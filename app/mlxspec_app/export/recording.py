"""A trace for the exporters: its events, the conversation that they fold to, and the figures.

A trace may contain a whole chat. Every export shows all of it in order, and every figure comes from
`mlxspec.trace.stats`, so that two exports cannot disagree.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from mlxspec.errors import TraceError
from mlxspec.trace.events import Event, TurnStarted
from mlxspec.trace.file import read_trace
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.messages import Message, Reply, Span
from mlxspec_app.text.chat_labels import title_of


@dataclass(frozen=True)
class Recording:
    """The input of an export; `messages` are the fold of `events`, oldest first."""

    title: str
    events: tuple[Event, ...]
    messages: tuple[Message, ...]

    @classmethod
    def of(cls, title: str, events: Iterable[Event]) -> "Recording":
        recorded = tuple(events)
        messages = tuple(fold(recorded).messages)
        if not any(isinstance(message, Reply) for message in messages):
            raise TraceError(f"{title} has no reply to export; record one with --trace FILE")
        return cls(title, recorded, messages)

    @classmethod
    def read(cls, path: str | PathLike[str]) -> "Recording":
        """Read a trace file; the title is that of the chat, else the name of the file."""
        events = tuple(read_trace(path))
        return cls.of(chat_title(events) or Path(path).stem, events)

    @property
    def replies(self) -> list[Reply]:
        return [message for message in self.messages if isinstance(message, Reply)]

    @property
    def has_kept(self) -> bool:
        """Whether a reply is a branch of an earlier one and so starts with kept tokens."""
        return any(reply.kept is not None for reply in self.replies)


def chat_title(events: Iterable[Event]) -> str:
    """Return the title that the first message of the user gives a chat, or ""."""
    users = (e.text for e in events if isinstance(e, TurnStarted) and e.role == "user")
    return next((title for text in users if (title := title_of(text))), "")


class Written(NamedTuple):
    """The text of a round: its number from 1, and the spans of its tokens by their index from 0.

    Number 0 has the kept tokens of a branch.
    """

    number: int
    tokens: list[tuple[int, Span]]


def written_by_round(reply: Reply) -> list[Written]:
    """Return the spans of each round; text that the end released belongs to the last token."""
    spans = iter(reply.spans)
    told = [(number, round_.verdict.emit) for number, round_ in enumerate(reply.rounds, 1)]
    if reply.kept is not None:
        told.insert(0, (0, reply.kept.emit))
    found = [
        Written(number, [(index, next(spans)) for index, token in enumerate(emit) if token.text])
        for number, emit in told
    ]
    if rest := list(spans):
        last = len(reply.rounds[-1].verdict.emit) - 1 if reply.rounds else 0
        found = found or [Written(1, [])]
        found[-1].tokens.extend((max(0, last), span) for span in rest)
    return found
