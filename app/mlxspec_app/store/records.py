"""Records that the store returns: chats, messages, replies and search hits.

Times are seconds since 1970, UTC. Each chat and each message has a number in the store, its `id`.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from mlxspec_app.store.search_text import SnippetPart

Role = Literal["user", "assistant"]
MessageState = Literal["finished", "partial", "failed"]
"""`finished`: complete; `failed`: a reply that an error ended.

`partial`: a reply that is being written, was stopped by the user, or was cut off at the app's end.
"""

LOST_ENDING = "lost"
"""Reason of a reply that neither the model nor the user ended, once the user was notified."""

COMPARISON = "comparison"
"""Key among a reply's figures: its comparison with plain decoding, as in `SpeedupMeasured`."""


@dataclass(frozen=True)
class Chat:
    """A chat without its messages.

    `title` is from the user, or the start of the first message. `leaf` is the last message of the
    current branch, None while the chat is empty.
    """

    id: int
    title: str
    system: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    leaf: int | None = None


@dataclass(frozen=True)
class ChatSummary:
    """A row of the list of chats; `snippet` is the start of the last message, on one line.

    `num_messages` counts from the first to the leaf.
    """

    id: int
    title: str
    updated: float
    num_messages: int
    snippet: str


@dataclass(frozen=True)
class Generation:
    """How a reply was generated.

    Attributes:
        settings: The other fields of `GenerationStarted`: device, cache, sampling and so on.
        stats: Empty while the reply is being written and after a failure.
        reason: Why the reply ended, or None.
        error: Message of the error that ended the reply, or "".
        trace: File name in the folder of traces, or "".
    """

    target: str = ""
    drafter: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    stats: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None
    error: str = ""
    trace: str = ""


@dataclass(frozen=True)
class StoredMessage:
    """A message in the tree of its chat.

    Attributes:
        id: Larger than the number of the parent.
        parent: The previous message on the branch; None for a first message.
        sibling: Index among the messages with the same parent, from 1, the oldest first.
        num_siblings: Number of messages with the same parent, itself included.
        generation: None for a message of the user.
    """

    id: int
    chat: int
    parent: int | None
    role: Role
    state: MessageState
    text: str
    sibling: int = 1
    num_siblings: int = 1
    generation: Generation | None = None


@dataclass(frozen=True)
class SearchHit:
    """A message that a search found, which may be on another than the current branch.

    `snippet` has the words around the match.
    """

    chat: int
    title: str
    message: int
    role: Role
    created: float
    snippet: tuple[SnippetPart, ...]


@dataclass(frozen=True)
class Version:
    """Which of several alternatives a message is, from 1: edits of a turn, or replies to it."""

    number: int
    count: int


class StoredChat(NamedTuple):
    """A chat, and the messages of its current branch from the first to the leaf."""

    chat: Chat
    path: tuple[StoredMessage, ...]


@dataclass(frozen=True)
class Standing:
    """What the store has recorded of the conversation on the screen.

    `chat` is None before the first message. `versions` has the version of each message that has
    more than one, by the message's index in the conversation, from 0.
    """

    chat: int | None = None
    title: str = ""
    versions: dict[int, Version] = field(default_factory=dict)


class Overview(NamedTuple):
    """The number of chats, the one that was changed last, and whether it ends in a cut-off reply.

    A reply was cut off if neither the model nor the user ended it.
    """

    num_chats: int
    last: ChatSummary | None = None
    is_cut_off: bool = False
