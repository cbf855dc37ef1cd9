"""Queries of the screens to the store; they run in the store's thread.

A message on the screen has no number of the store. It is named by its index among the messages of
the user and the model, from 0, which is also its index in the recorder's path.
"""

from typing import TYPE_CHECKING

from mlxspec_app.store.errors import GoneError
from mlxspec_app.store.records import Overview, Standing, StoredChat

if TYPE_CHECKING:
    from mlxspec_app.store.recorder import Recorder

FORK_SIGN = " · fork"  # at the end of the title of a chat that started as a copy


def overview(recorder: "Recorder") -> Overview:
    """Return the number of chats and how the last one ended."""
    reader = recorder.writer.reader
    last = next(iter(reader.recent(1)), None)
    if last is None:
        return Overview(0)
    leaf = reader.chat(last.id).leaf
    end = None if leaf is None else reader.message(leaf)
    generation = end.generation if end is not None and end.state == "partial" else None
    is_cut_off = recorder.is_alone and generation is not None and generation.reason is None
    return Overview(reader.count(), last, is_cut_off)


def standing(recorder: "Recorder") -> Standing:
    """Return what the store has recorded of the conversation on the screen."""
    if recorder.chat is None:
        return Standing()
    reader = recorder.writer.reader
    versions = [] if recorder.leaf is None else reader.versions_to(recorder.leaf)
    return Standing(
        recorder.chat,
        reader.chat(recorder.chat).title,
        {index: version for index, version in enumerate(versions) if version.count > 1},
    )


def find_chat(recorder: "Recorder", chat: int, message: int | None = None) -> StoredChat:
    """Return a chat; with `message`, switch to the branch of that message first.

    Raises:
        GoneError: The chat or the message is not in the store.
    """
    path = recorder.writer.reader.path(chat)
    if message is not None and all(message != stored.id for stored in path):
        recorder.writer.switch_to(message)
        path = recorder.writer.reader.path(chat)
    return StoredChat(recorder.writer.reader.chat(chat), tuple(path))


def find_last(recorder: "Recorder") -> StoredChat | None:
    """Return the chat that was changed last, apart from the one on the screen."""
    others = (chat for chat in recorder.writer.reader.recent(2) if chat.id != recorder.chat)
    last = next(others, None)
    return None if last is None else find_chat(recorder, last.id)


def find_version(recorder: "Recorder", index: int, step: int) -> StoredChat | None:
    """Return the conversation with another version of a message, or None if there is none.

    `index` is the message's index in the chat; `step` is the number of versions forwards, negative
    for back.
    """
    this = recorder.writer.reader.message(number_at(recorder, index))
    version = this.sibling - 1 + step
    if not 0 <= version < this.num_siblings:
        return None
    return find_chat(recorder, this.chat, recorder.writer.reader.siblings(this.id)[version].id)


def fork_at(recorder: "Recorder", index: int) -> StoredChat:
    """Return a new chat that copies the conversation on the screen up to a message."""
    return find_chat(recorder, _fork(recorder, number_at(recorder, index)))


def fork_chat(recorder: "Recorder", chat: int) -> int:
    """Return the number of a new chat that copies a chat's conversation.

    Raises:
        GoneError: The chat is not in the store, or it has no message.
    """
    leaf = recorder.writer.reader.chat(chat).leaf
    if leaf is None:
        raise GoneError("this chat has no messages: there is nothing to copy")
    return _fork(recorder, leaf)


def number_at(recorder: "Recorder", index: int) -> int:
    """Return the number of the message with an index in the conversation on the screen.

    Raises:
        GoneError: The message could not be written to the store yet.
    """
    path = recorder.path()
    if index >= len(path):
        raise GoneError("this message is not in the store")
    return path[index].id


def _fork(recorder: "Recorder", message: int) -> int:
    """Copy the conversation up to a message, under a title that differs from the original."""
    writer = recorder.writer
    with writer.transaction():
        chat = writer.fork(message)
        writer.rename(chat, writer.reader.chat(chat).title.removesuffix(FORK_SIGN) + FORK_SIGN)
    return chat
