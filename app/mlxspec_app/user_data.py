"""What outlives a session of the app: where things lie, what the user chose, and the chats."""

import queue
import sys
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING

from mlxspec.trace.events import Event
from mlxspec_app.conversation.session import Session, SessionEvent
from mlxspec_app.picker.catalogue import Catalogue
from mlxspec_app.settings.file import Settings, SettingsError, change_settings, read_settings
from mlxspec_app.settings.rules import Value
from mlxspec_app.settings.values import with_value
from mlxspec_app.user.log import AppLog
from mlxspec_app.user.paths import Places, find_places

if TYPE_CHECKING:
    from mlxspec_app.store.thread import StoreThread


def _print(message: str) -> None:
    print(f"mlxspec: {message}", file=sys.stderr)


@dataclass
class Desk:
    """The user's own things, shared by the screens.

    Attributes:
        places: Where they lie.
        settings: What the user chose.
        notices: What the user should know about the settings file.
        store: The chats, while a session keeps them; None before, and where none are kept.
        catalogue: Knows the models that can be chosen; None where none can be.
        log: What went wrong.
        is_new: Whether nothing was kept here before.
        keeps_chats: Whether the chat keeps what is said, from the moment it begins.
    """

    places: Places
    settings: Settings = field(default_factory=Settings)
    notices: tuple[str, ...] = ()
    store: "StoreThread | None" = None
    catalogue: Catalogue | None = None
    log: AppLog = field(init=False)
    is_new: bool = False
    keeps_chats: bool = False
    _tell: Callable[[str], None] = field(default=_print, init=False, repr=False)
    _unwritten: "queue.SimpleQueue[tuple[str, Value | None]]" = field(
        default_factory=queue.SimpleQueue, repr=False
    )
    _writing: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        self.log = AppLog(self.places.logs)

    def keep_chats_of(self, session: Session, wake: Callable[[], object] = lambda: None) -> None:
        """Open the store; what goes wrong there is told by the session, while there is one.

        Args:
            session: The session.
            wake: Called in the thread of the store when the session has something to tell.
        """
        from mlxspec_app.store.thread import StoreThread  # and SQLite, after the first frame

        def tell(text: str) -> None:
            session.tell(text)
            wake()

        self._tell = tell
        self.store = StoreThread(
            self.places.store, lambda text: self._tell(text), self.places.traces
        )
        self.store.start()

    def take_in(self, event: Event | SessionEvent) -> None:
        """Keep what happened."""
        self.log.take_in(event)
        if self.store is not None:
            self.store.record(event)

    def change(self, name: str, value: Value | None, themes: Collection[str] = ()) -> None:
        """Change a setting; `write_settings` puts it into the file.

        Args:
            name: Its dotted name.
            value: What it is from now on; None for the default.
            themes: The themes there are; without any, every name is allowed.

        Raises:
            ValueError: There is no such setting, or it cannot have this value.
        """
        self.settings = with_value(self.settings, name, value, themes)
        self._unwritten.put((name, value))

    def write_settings(self) -> None:
        """Write the changes that are not in the file yet; may be called from any thread.

        Raises:
            SettingsError: The file cannot be read or written; then it is as it was.
        """
        with self._writing:
            changes = {}
            while not self._unwritten.empty():
                name, value = self._unwritten.get()
                changes[name] = value
            if changes:
                change_settings(self.places.settings, changes)

    def close(self) -> None:
        """Write what is left, and wait for it; what goes wrong from here on goes to stderr."""
        self._tell = _print
        with suppress(SettingsError):  # it was told when it was written first
            self.write_settings()
        if self.store is not None:
            self.store.close()
        self.log.close()


def find_desk(
    data_dir: str | PathLike[str] | None = None,
    *,
    themes: Collection[str] = (),
    key_ids: Collection[str] = (),
) -> Desk:
    """Return the desk of the user, or the one in a folder; reads the settings, makes no file.

    Args:
        data_dir: What `--data-dir` names.
        themes: The themes there are; without any, every name is allowed.
        key_ids: The ids of the bindings there are; without any, every id is allowed.
    """
    places = find_places(data_dir)
    read = read_settings(places.settings, themes=themes, key_ids=key_ids)
    return Desk(places, read.settings, read.notices, is_new=not places.store.exists())
