"""Queries of the screens to the store; they run in the store's thread.

A message on the screen has no number of the store. It is named by its index among the messages of
the user and the model, from 0, which is also its index in the recorder's path. Each may raise
`GoneError` if a chat or a message is not in the store, or not yet.
"""

from typing import TYPE_CHECKING

from mlxspec_app.store.errors import GoneError
from mlxspec_app.store.records import Overview, Standing, StoredChat, StoredMessage, Version

if TYPE_CHECKING:
    from mlxspec_app.store.recorder import Recorder

FORK_SIGN = " · fork"  # at the end of the title of a chat that started as a copy


def overview(recorder: "Recorder") -> Overview:
    """Return the number of chats and how the last one ended."""
    writer = recorder.writer
    last = next(iter(writer.recent(1)), None)
    if last is None:
        return Overview(0)
    leaf = writer.chat(last.id).leaf
    end = None if leaf is None else writer.message(leaf)
    generation = end.generation if end is not None and end.state == "partial" else None
    is_cut_off = recorder.is_alone and generation is not None and generation.reason is None
    return Overview(writer.count(), last, is_cut_off)


def standing(recorder: "Recorder") -> Standing:
    """Return what the store has recorded of the conversation on the screen."""
    if recorder.chat is None:
        return Standing()
    versions = {
        index: Version(message.sibling, message.num_siblings)
        for index, message in enumerate(recorder.path())
        if message.num_siblings > 1
    }
    return Standing(recorder.chat, recorder.writer.chat(recorder.chat).title, versions)


def find_chat(recorder: "Recorder", chat: int, message: int | None = None) -> StoredChat:
    """Return a chat; with `message`, switch to the branch of that message first."""
    writer = recorder.writer
    path = writer.path(chat)
    if message is not None and all(message != stored.id for stored in path):
        writer.switch_to(message)
        path = writer.path(chat)
    return StoredChat(writer.chat(chat), tuple(path))


def find_last(recorder: "Recorder") -> StoredChat | None:
    """Return the chat that was changed last, apart from the one on the screen."""
    others = (chat for chat in recorder.writer.recent(2) if chat.id != recorder.chat)
    last = next(others, None)
    return None if last is None else find_chat(recorder, last.id)


def find_version(recorder: "Recorder", index: int, step: int) -> StoredChat | None:
    """Return the conversation with another version of a message, or None if there is none.

    `step` is the number of versions forwards, negative for back.
    """
    this = message_at(recorder, index)
    version = this.sibling - 1 + step
    if not 0 <= version < this.num_siblings:
        return None
    return find_chat(recorder, this.chat, recorder.writer.siblings(this.id)[version].id)


def fork_at(recorder: "Recorder", index: int) -> StoredChat:
    """Return a new chat that copies the conversation on the screen up to a message."""
    return find_chat(recorder, _fork(recorder, message_at(recorder, index).id))


def fork_chat(recorder: "Recorder", chat: int) -> int:
    """Return the number of a new chat that copies a chat's conversation."""
    leaf = recorder.writer.chat(chat).leaf
    if leaf is None:
        raise GoneError("this chat has no messages: there is nothing to copy")
    return _fork(recorder, leaf)


def message_at(recorder: "Recorder", index: int) -> StoredMessage:
    """Return the message with an index in the conversation on the screen."""
    path = recorder.path()
    if index >= len(path):
        raise GoneError("this message is not in the store")
    return path[index]


def _fork(recorder: "Recorder", message: int) -> int:
    """Copy the conversation up to a message, under a title that differs from the original."""
    writer = recorder.writer
    with writer.transaction():
        chat = writer.fork(message)
        writer.rename(chat, writer.chat(chat).title.removesuffix(FORK_SIGN) + FORK_SIGN)
    return chat
