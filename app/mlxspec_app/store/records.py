"""What the store hands out: plain records of chats, messages and replies."""

from dataclasses import dataclass, field
from typing import Any, Literal

from mlxspec_app.store.words import SnippetPart

Role = Literal["user", "assistant"]
MessageState = Literal["finished", "partial", "failed"]
"""`finished`: all there; `partial`: a reply that is being written, was stopped, or was cut off
when the app ended; `failed`: a reply that an error broke off."""

LOST_ENDING = "lost"
"""Reason of a reply that neither the model nor the user ended, once the user was told of it."""


@dataclass(frozen=True)
class Chat:
    """A chat without its messages.

    Attributes:
        id: Its number in the store.
        title: What the user called it, or the beginning of the first message.
        created: Seconds since 1970, UTC.
        updated: When something was last said or renamed, likewise.
        system: System prompt, or None.
        settings: Settings of the chat by name.
        leaf: The message after which it goes on; None while it is empty.
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
        title: Its title.
        updated: Seconds since 1970, UTC.
        num_messages: Messages from its first to its leaf.
        snippet: Beginning of the last message, on one line.
    """

    id: int
    title: str
    updated: float
    num_messages: int
    snippet: str


@dataclass(frozen=True)
class Generation:
    """How a reply came about.

    Attributes:
        target: Name of the target model.
        drafter: Name of the drafter.
        settings: Device, cache, sampling and the like, as `GenerationStarted` states them.
        seed: Seed of the random key, or None if it is not known.
        stats: Figures of the reply; empty while it is being written and after a failure.
        reason: Why it ended, or None.
        error: What broke it off, or "".
        trace: Name of its file in the folder of traces, or "".
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
        id: Its number in the store; larger than that of its parent.
        chat: The chat it belongs to.
        parent: The message it answers; None for a first one.
        role: Who said it.
        state: Whether it is all there.
        text: What was said.
        created: Seconds since 1970, UTC.
        sibling: Its place among the messages with the same parent, from 1.
        num_siblings: How many these are, itself included.
        generation: How it came about; None for what the user said.
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
    """A message that was found.

    Attributes:
        chat: Its chat.
        title: Title of the chat.
        message: Number of the message, which may lie off the current path.
        role: Who said it.
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
    """One of several messages that may stand at the same place of a conversation.

    Attributes:
        number: Its place among them, from 1, the oldest first.
        count: How many there are.
    """

    number: int
    count: int


@dataclass(frozen=True)
class StoredChat:
    """A chat and the conversation as it stands in it.

    Attributes:
        chat: The chat.
        path: Its messages from the first to the leaf.
    """

    chat: Chat
    path: tuple[StoredMessage, ...]


@dataclass(frozen=True)
class Standing:
    """What the store knows of the conversation on the screen.

    Attributes:
        chat: Number of its chat, or None before anything was said.
        title: Title of the chat, or "".
        versions: Which version each message is, of those that have others; by the place of the
            message in the conversation, from 0.
    """

    chat: int | None = None
    title: str = ""
    versions: dict[int, Version] = field(default_factory=dict)


@dataclass(frozen=True)
class Overview:
    """The chats at a glance.

    Attributes:
        num_chats: How many there are.
        last: The one that was last changed, or None.
        is_cut_off: Whether it ends in a reply that neither the model nor the user ended.
    """

    num_chats: int
    last: ChatSummary | None = None
    is_cut_off: bool = False
