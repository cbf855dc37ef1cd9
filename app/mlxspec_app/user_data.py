"""The user data: what outlives a session of the app, such as paths, settings and chats."""

import queue
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING

from mlxspec.drafting.entries import ModelEntry
from mlxspec_app.conversation.events import AnyEvent
from mlxspec_app.picker.catalogue import Catalogue, Fetching
from mlxspec_app.sessions.session import Session
from mlxspec_app.settings.file import (
    Settings,
    SettingsError,
    change_settings,
    read_settings,
    with_value,
)
from mlxspec_app.settings.rules import Value
from mlxspec_app.user.log import log_error
from mlxspec_app.user.paths import Paths, find_paths

if TYPE_CHECKING:
    from mlxspec_app.store.thread import StoreThread


def _print(message: str) -> None:
    print(f"mlxspec: {message}", file=sys.stderr)


@dataclass
class UserData:
    """The user data, shared by the screens."""

    paths: Paths
    settings: Settings = field(default_factory=Settings)
    notices: tuple[str, ...] = ()  # the problems of the settings file, a sentence each
    store: "StoreThread | None" = None  # None before `store_chats_of`
    catalogue: Catalogue | None = None  # None if the user cannot choose a model
    fetching: Fetching | None = None  # the last background download
    is_new: bool = False  # there was no store before
    stores_chats: bool = False  # a chat screen opens the store when it starts
    _notify: Callable[[str], None] = field(default=_print, init=False, repr=False)
    _unwritten: "queue.SimpleQueue[tuple[str, Value | None]]" = field(
        default_factory=queue.SimpleQueue, repr=False
    )
    _writing: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def store_chats_of(self, session: Session, wake: Callable[[], object] = lambda: None) -> None:
        """Open the store; its errors become notices of the session, and its thread calls `wake`."""
        from mlxspec_app.store.thread import StoreThread  # late: it imports SQLite

        def notify(text: str) -> None:
            session.notify(text)
            wake()

        self._notify = notify
        paths = self.paths
        self.store = StoreThread(
            paths.store, paths.traces, lambda text: self._notify(text), rows=paths.prefixes
        )
        self.store.start()

    def record(self, event: AnyEvent) -> None:
        log_error(event, self.paths.logs)
        if self.store is not None:
            self.store.record(event)

    def fetch(self, model: ModelEntry) -> None:
        """Download a model in a thread that ends with the process: what is here stays."""
        assert self.catalogue is not None
        self.fetching = Fetching(model)
        run, fetch = self.fetching.run, self.catalogue.fetch
        threading.Thread(target=run, args=(fetch,), name="mlxspec-fetch", daemon=True).start()

    def change(self, name: str, value: Value | None) -> None:
        """Change a setting by its dotted name, in memory; None sets the default."""
        self.settings = with_value(self.settings, name, value)
        self._unwritten.put((name, value))

    def write_settings(self) -> None:
        """Write the pending changes, from any thread; a SettingsError leaves the file as it is."""
        with self._writing:  # a write reads the file, changes it and replaces it
            changes = {}
            while not self._unwritten.empty():
                name, value = self._unwritten.get()
                changes[name] = value
            if changes:
                change_settings(self.paths.settings, changes)

    def close(self) -> None:
        """Write pending changes and wait; errors from here on go to standard error."""
        self._notify = _print
        if self.fetching is not None:
            self.fetching.is_stopped = True
        with suppress(SettingsError):  # the first attempt to write has shown the error
            self.write_settings()
        if self.store is not None:
            self.store.close()


def find_user_data(data_dir: str | PathLike[str] | None = None) -> UserData:
    """Return the user data; reads the settings, creates no file."""
    paths = find_paths(data_dir)
    loaded = read_settings(paths.settings)
    return UserData(paths, loaded.settings, loaded.notices, is_new=not paths.store.exists())
