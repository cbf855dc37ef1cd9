"""The stored part of the chat on the screen: the events of its session as changes of the store.

A turn adds a message, a reply grows by one piece per round, and a discarded reply stays while the
next one becomes its sibling. A chat without messages adds no row.
"""

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mlxspec.trace.events import (
    CostMeasured,
    DraftVerified,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    SpeedupMeasured,
    TokensKept,
    TurnStarted,
)
from mlxspec_app.conversation.events import (
    AnyEvent,
    ChatCleared,
    ChatCut,
    ChatOpened,
    ReplyDiscarded,
    SessionEvent,
)
from mlxspec_app.store.errors import GoneError
from mlxspec_app.store.records import (
    COMPARISON,
    Generation,
    MessageState,
    Role,
    Standing,
    StoredChat,
    StoredMessage,
    Version,
)
from mlxspec_app.store.traces import ReplyTraces
from mlxspec_app.store.writer import Writer
from mlxspec_app.text.chat_labels import label_of

_OWN_COLUMNS = ("target", "drafter", "seed", "format")


class Recorder:
    """Writes the chat on the screen, and finds it and others again; for the store's thread."""

    def __init__(self, writer: Writer, traces: ReplyTraces, rows: Path | None = None) -> None:
        """Write into a store; `rows` is the folder with the rows of the chats, if there is one."""
        self.writer, self._rows = writer, rows
        self._deleted = set[str]()  # labels of rows
        self.chat: int | None = None  # before its first message
        self.leaf: int | None = None  # the message that the next one follows
        self.system: str | None = None  # of the next new chat
        self._traces = traces
        self._reply: int | None = None
        self._ended: int | None = None  # the reply whose comparison may still come
        self._turn: TurnStarted | None = None
        self._repeats_turn = False

    def apply(self, event: AnyEvent) -> None:
        """Write an event; after a `StoreError` nothing has changed, and the caller can retry."""
        match event:
            case TurnStarted(role="system"):
                self._set_system(event.text)
            case TurnStarted():
                self._add_turn(event)
            case GenerationStarted():
                self._begin(event)
            case TokensKept() | DraftVerified() | PlainDecoded():
                self._extend("".join(token.text for token in event.emit))
            case GenerationFinished():
                state: MessageState = "partial" if event.reason == "cancelled" else "finished"
                self._finish(state, event.text, event.reason, event.stats)
            case GenerationFailed():
                self._fail(event)
            case SpeedupMeasured():
                self._compare(event)
            case ReplyDiscarded():
                self._discard()
            case ChatCleared():
                self.new_chat()
            case ChatOpened():
                self._point_to(event.chat, event.leaf)
                self.system = event.system
            case ChatCut():
                self._cut(event.num_turns)
        self._trace(event)

    def new_chat(self) -> None:
        """Start another chat; its first message adds it to the store."""
        self._point_to(None, None)

    def path(self) -> list[StoredMessage]:
        return [] if self.leaf is None else self.writer.path_to(self.leaf)

    # The screen names a message by its index among those of the user and the model, from 0.

    def standing(self) -> Standing:
        """Return what the store has recorded of the conversation on the screen."""
        if self.chat is None:
            return Standing()
        versions = {
            index: Version(message.sibling, message.num_siblings)
            for index, message in enumerate(self.path())
            if message.num_siblings > 1
        }
        return Standing(self.chat, self.writer.chat(self.chat).title, versions)

    def find_last(self) -> StoredChat | None:
        """Return the chat that was changed last, apart from the one on the screen."""
        others = (entry.chat for entry in self.writer.recent(2) if entry.chat != self.chat)
        last = next(others, None)
        return None if last is None else self.writer.find_chat(last)

    def find_version(self, index: int, step: int) -> StoredChat | None:
        """Return the conversation with another version of a message, or None if there is none.

        `step` is the number of versions forwards, negative for back.
        """
        this = self._message_at(index)
        version = this.sibling - 1 + step
        if not 0 <= version < this.num_siblings:
            return None
        return self.writer.find_chat(this.chat, self.writer.siblings(this.id)[version].id)

    def fork_at(self, index: int) -> StoredChat:
        """Return a new chat that copies the conversation on the screen up to a message."""
        return self.writer.find_chat(self.writer.fork(self._message_at(index).id))

    def _message_at(self, index: int) -> StoredMessage:
        path = self.path()
        if index >= len(path):
            raise GoneError("this message is not in the store")
        return path[index]

    def delete(self, chat: int) -> None:
        """Hide a chat, as `Writer.delete` does, and delete its rows: they are computed again."""
        self.writer.delete(chat)
        self._deleted |= set(map(label_of, self.writer.questions(chat)))
        self._delete_rows()

    def _delete_rows(self) -> None:
        if self._rows is None:
            return
        for label in self._deleted:
            for path in self._rows.glob(f"{label}-*.safetensors"):
                with suppress(OSError):
                    path.unlink()

    def close(self) -> None:
        """End an open reply as stopped, purge deleted chats, and close the store, in any case."""
        try:
            self._finish("partial", reason="cancelled")
            unused = self.writer.purge()
            self._traces.end()
            self._traces.remove(unused)
            self._delete_rows()  # again: the engine may have written some meanwhile
        finally:
            self.writer.close()

    def _point_to(self, chat: int | None, leaf: int | None) -> None:
        self.chat, self.leaf = chat, leaf
        self._turn, self._repeats_turn = None, False

    def _set_system(self, text: str) -> None:
        if self.chat is not None:
            self.writer.set_system(self.chat, text)
        self.system = text

    def _add_turn(self, event: TurnStarted) -> None:
        # After a discarded reply the session may send the same turn again: it is stored already.
        if not (self._repeats_turn and self._leaf_role() == "user"):
            with self.writer.transaction():
                chat = self._chat_to_write()
                leaf = self.writer.add_message(chat, self.leaf, "user", event.text)
            self.chat, self.leaf = chat, leaf
        self._turn, self._repeats_turn = event, False

    def _begin(self, event: GenerationStarted) -> None:
        self._finish("partial")  # an earlier reply without an end stays as it is
        self._ended = None
        settings = {k: v for k, v in asdict(event).items() if k not in _OWN_COLUMNS}
        with self.writer.transaction():
            chat = self._chat_to_write()
            parent = self.leaf if chat == self.chat else None
            generation = Generation(event.target, event.drafter, settings, event.seed)
            reply = self.writer.begin_reply(chat, parent, generation)
            before = [TurnStarted("system", self.system)] if self.system else []
            before += [self._turn] if self._turn is not None else []
            self.writer.set_trace(reply, self._traces.begin(reply, before))
        self.chat, self.leaf, self._reply = chat, reply, reply
        self._repeats_turn = False

    def _extend(self, text: str) -> None:
        if self._reply is None or not text:
            return
        try:
            self.writer.extend_reply(self._reply, text)
        except GoneError:  # another window deleted the chat: drop the rest of the reply
            self._reply = None

    def _finish(
        self,
        state: MessageState,
        text: str = "",
        reason: str | None = None,
        stats: dict[str, Any] | None = None,
        error: str = "",
    ) -> None:
        if self._reply is None:
            return
        try:
            with self.writer.transaction():
                if text:
                    self.writer.extend_reply(self._reply, text)
                self.writer.finish_reply(self._reply, state, reason, stats, error)
        except GoneError:
            pass
        self._ended, self._reply = self._reply, None

    def _compare(self, event: SpeedupMeasured) -> None:
        if self._ended is not None:
            self.writer.add_figures(self._ended, {COMPARISON: asdict(event)})

    def _fail(self, event: GenerationFailed) -> None:
        error = event.message or "the reply was cut off"
        if self._reply is not None:
            self._finish("failed", error=error)
        elif self.chat is not None and self._leaf_role() == "user":
            reply = self.writer.begin_reply(self.chat, self.leaf, Generation(error=error))
            self.leaf, self._reply = reply, reply
            self._finish("failed", error=error)

    def _discard(self) -> None:
        self._finish("partial")
        if self.leaf is not None and self._leaf_role() == "assistant":
            self.leaf = self.writer.message(self.leaf).parent
        self._repeats_turn = True

    def _cut(self, num_turns: int) -> None:
        self._finish("partial")
        turns = [message for message in self.path() if message.role == "user"]
        if num_turns < len(turns):
            self._point_to(self.chat, turns[num_turns].parent)

    def _leaf_role(self) -> Role | None:
        return None if self.leaf is None else self.writer.message(self.leaf).role

    def _chat_to_write(self) -> int:
        """Return the chat; a new one if there is none yet, or if another window removed it."""
        if self.chat is not None:
            try:
                return self.writer.chat(self.chat).id
            except GoneError:
                self.new_chat()
        return self.writer.new_chat("", self.system)

    def _trace(self, event: AnyEvent) -> None:
        if isinstance(event, CostMeasured | SpeedupMeasured):
            self._traces.add_to_ended(event)
        elif not isinstance(event, SessionEvent | TurnStarted):
            self._traces.write(event)
        if isinstance(event, GenerationFinished | GenerationFailed):
            self._traces.end()
