"""Records that the store returns: chats, messages, replies, and entries of the list of chats.

Times are seconds since 1970, UTC. Each chat and each message has a number in the store, its `id`.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from mlxspec_app.store.search_text import SnippetPart

Role = Literal["user", "assistant"]
MessageState = Literal["finished", "partial", "failed"]
"""`partial`: a reply that is being written, was stopped, or was cut off at the end of the app."""

COMPARISON = "comparison"
"""Key among a reply's figures: its comparison with plain decoding, as in `SpeedupMeasured`."""


def storable(text: str) -> str:
    """Return the text with lone surrogates escaped, because SQLite cannot store them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


@dataclass(frozen=True)
class Chat:
    """A chat without its messages; `leaf` is the last one of the current branch, if there is one.

    `title` is from the user, or the start of the first message.
    """

    id: int
    title: str
    system: str | None = None
    leaf: int | None = None


class Entry(NamedTuple):
    """An entry of the list of chats: a chat, or one of its messages that a search found."""

    chat: int
    title: str
    changed: float
    note: str  # how many messages the chat has, or who wrote the message
    snippet: tuple[SnippetPart, ...]  # the start of the last message, or words around the match
    message: int | None = None


@dataclass(frozen=True)
class Generation:
    """How a reply was generated; `settings` are the other fields of `GenerationStarted`."""

    target: str = ""
    drafter: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    stats: dict[str, Any] = field(default_factory=dict)  # empty before the end and after a failure
    reason: str | None = None
    error: str = ""
    trace: str = ""  # file name in the folder of traces


@dataclass(frozen=True)
class StoredMessage:
    """A message in the tree of its chat; the siblings are the messages with the same parent."""

    id: int  # larger than the number of the parent
    chat: int
    parent: int | None
    role: Role
    state: MessageState
    text: str
    sibling: int = 1  # from 1, the oldest first
    num_siblings: int = 1
    generation: Generation | None = None  # None for a message of the user


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
    """What the store has recorded of the conversation on the screen; `chat` may not be stored yet.

    `versions` has each message with more than one version, by its index in the conversation.
    """

    chat: int | None = None
    title: str = ""
    versions: dict[int, Version] = field(default_factory=dict)


class ChosenChat(NamedTuple):
    """The chat that the user chose, or None for a new one; the message to show, or None."""

    chat: int | None
    message: int | None = None


class Overview(NamedTuple):
    """The number of chats, and the one that was changed last."""

    num_chats: int
    last: Entry | None = None
