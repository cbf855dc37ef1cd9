"""Stores for tests: a writer on a file, a clock that steps, and replies as events."""

from contextlib import closing
from itertools import count

import pytest

from mlxspec.trace.events import (
    EmittedToken,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    TurnStarted,
)
from mlxspec_app.store.database import open_for_writing
from mlxspec_app.store.reader import Reader
from mlxspec_app.store.recorder import Recorder
from mlxspec_app.store.traces import ReplyTraces
from mlxspec_app.store.writer import Writer


def steps(start=1_000.0):
    """A clock that advances by one second with every read."""
    ticks = count(start)
    return lambda: float(next(ticks))


def open_writer(path, clock=None):
    """A writer on a store; it must report no problem."""
    notices = []
    connection = open_for_writing(path, notices.append)
    connection.execute("PRAGMA synchronous = OFF")  # only faster: no test cuts the power
    assert not notices
    return Writer(connection, clock or steps())


def open_recorder(path, notify=pytest.fail, rows=None):
    """A recorder on a store, with the traces of its replies beside it."""
    return Recorder(open_writer(path), ReplyTraces(path.with_name("traces"), notify), rows)


def open_reader(path):
    """A reader of a store, on a connection that cannot write; use it as a context manager."""
    connection = open_for_writing(path, pytest.fail)
    connection.execute("PRAGMA query_only = ON")
    return closing(Reader(connection))


def say(writer, chat, *texts):
    """Add turns of user and assistant in alternation; return their numbers."""
    leaf = writer.chat(chat).leaf
    roles = ("user", "assistant")
    added = []
    for number, text in enumerate(texts):
        leaf = writer.add_message(chat, leaf, roles[number % 2], text)
        added.append(leaf)
    return added


def edit(writer, message, text):
    """Add another version of a message and return its number."""
    this = writer.message(message)
    return writer.add_message(this.chat, this.parent, this.role, text)


def messages_of(reader, chat):
    """All messages of a chat on all branches, parents before children."""
    numbers = reader._rows("SELECT id FROM message WHERE chat = ? ORDER BY id", (chat,))
    return [reader.message(number) for (number,) in numbers]


def texts_of(messages):
    return [message.text for message in messages]


def round_of(text, r=1):
    return PlainDecoded(r, 0.1 * r, (EmittedToken(r, text, "plain"),), 1.0, r)


def reply_events(*pieces, reason="stop", seed=7):
    """The events of a reply that is written in these pieces."""
    yield GenerationStarted("target", "suffix", device="a device", seed=seed)
    for r, piece in enumerate(pieces, 1):
        yield round_of(piece, r)
    yield GenerationFinished(9.0, reason, "", {"generated_tokens": len(pieces)})


def exchange(text, *pieces, **options):
    """The events of a turn and the reply to it."""
    yield TurnStarted("user", text)
    yield from reply_events(*pieces, **options)


def record(recorder, *groups):
    """Apply events, and groups of them."""
    for group in groups:
        for event in [group] if hasattr(group, "__dataclass_fields__") else group:
            recorder.apply(event)


def path(recorder):
    return recorder.writer.path(recorder.chat)


def current(writer, chat):
    return texts_of(writer.path(chat))


def recent_titles(writer):
    return [chat.title for chat in writer.recent()]
