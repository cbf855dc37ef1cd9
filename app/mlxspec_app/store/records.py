"""Records that the store returns: chats, messages, replies and search hits."""

from dataclasses import dataclass, field
from typing import Any, Literal

from mlxspec_app.store.search_text import SnippetPart

Role = Literal["user", "assistant"]
MessageState = Literal["finished", "partial", "failed"]
"""`finished`: complete; `partial`: a reply that is still being written, that the user stopped, or
that was cut off when the app ended; `failed`: a reply that an error ended."""

LOST_ENDING = "lost"
"""Reason of a reply that neither the model nor the user ended, once the user has seen a notice."""

COMPARISON = "comparison"
"""Among the figures of a reply: how it compares with plain decoding, as in `SpeedupMeasured`."""


@dataclass(frozen=True)
class Chat:
    """A chat without its messages.

    Attributes:
        id: Number of the chat in the store.
        title: Title from the user, or the beginning of the first message.
        created: Seconds since 1970, UTC.
        updated: Time of the last message or the last rename, in seconds since 1970, UTC.
        system: System prompt, or None.
        settings: Settings of the chat by name.
        leaf: Last message of the current branch; None while the chat is empty.
    """

    id: int
    title: str
    created: float
    updated: float
    system: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    leaf: int | None = None


@dataclass(frozen=True)
class ChatSummary:
    """A row of the list of chats.

    Attributes:
        id: Number of the chat.
        title: Title of the chat.
        updated: Seconds since 1970, UTC.
        num_messages: Number of messages from the first to the leaf.
        snippet: Beginning of the last message, on one line.
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
        target: Name of the target model.
        drafter: Name of the drafter.
        settings: The other fields of `GenerationStarted`: device, cache, sampling and so on.
        seed: Seed of the random key, or None if it is not known.
        stats: Figures of the reply; empty while it is being written and after a failure.
        reason: Why the reply ended, or None.
        error: Message of the error that ended the reply, or "".
        trace: File name of the trace in the folder of traces, or "".
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
        id: Number of the message in the store; larger than the number of the parent.
        chat: Number of the chat.
        parent: Number of the message before it on the branch; None for a first message.
        role: Author of the message.
        state: Whether the message is complete.
        text: Text of the message.
        created: Seconds since 1970, UTC.
        sibling: Index among the messages with the same parent, from 1.
        num_siblings: Number of messages with the same parent, itself included.
        generation: How the reply was generated; None for a message of the user.
    """

    id: int
    chat: int
    parent: int | None
    role: Role
    state: MessageState
    text: str
    created: float
    sibling: int = 1
    num_siblings: int = 1
    generation: Generation | None = None


@dataclass(frozen=True)
class SearchHit:
    """A message that a search found.

    Attributes:
        chat: Number of the chat.
        title: Title of the chat.
        message: Number of the message, which may be on another branch than the current one.
        role: Author of the message.
        created: Seconds since 1970, UTC.
        snippet: The words around the match.
    """

    chat: int
    title: str
    message: int
    role: Role
    created: float
    snippet: tuple[SnippetPart, ...]


@dataclass(frozen=True)
class Version:
    """Which of several alternatives a message is: edits of a turn, or replies to it.

    Attributes:
        number: Index of the message among its siblings, from 1, the oldest first.
        count: Number of siblings, itself included.
    """

    number: int
    count: int


@dataclass(frozen=True)
class StoredChat:
    """A chat and its current branch.

    Attributes:
        chat: The chat.
        path: The messages from the first to the leaf.
    """

    chat: Chat
    path: tuple[StoredMessage, ...]


@dataclass(frozen=True)
class Standing:
    """What the store has recorded of the conversation on the screen.

    Attributes:
        chat: Number of the chat, or None before its first message.
        title: Title of the chat, or "".
        versions: Version of each message that has more than one; by the index of the message in
            the conversation, from 0.
    """

    chat: int | None = None
    title: str = ""
    versions: dict[int, Version] = field(default_factory=dict)


@dataclass(frozen=True)
class Overview:
    """Summary of the store for the welcome screen.

    Attributes:
        num_chats: Number of chats.
        last: The chat that was changed last, or None.
        is_cut_off: Whether `last` ends in a reply that neither the model nor the user ended.
    """

    num_chats: int
    last: ChatSummary | None = None
    is_cut_off: bool = False
