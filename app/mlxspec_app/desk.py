"""What outlives a session of the app: where things lie, what the user chose, and the chats."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from os import PathLike

from mlxspec.events import Event
from mlxspec_app.catalogue import Catalogue
from mlxspec_app.log import AppLog
from mlxspec_app.places import Places, find_places
from mlxspec_app.session import Session, SessionEvent
from mlxspec_app.settings import Settings, read_settings
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
    """

    places: Places
    settings: Settings = field(default_factory=Settings)
    notices: tuple[str, ...] = ()
    store: StoreThread | None = None
    catalogue: Catalogue | None = None
    log: AppLog = field(init=False)
    _tell: Callable[[str], None] = field(default=_print, init=False, repr=False)

    def __post_init__(self) -> None:
        self.log = AppLog(self.places.logs)

    def keep_chats_of(self, session: Session) -> None:
        """Open the store; what goes wrong there is told by the session, while there is one."""
        self._tell = session.tell
        self.store = StoreThread(
            self.places.store, lambda text: self._tell(text), self.places.traces
        )
        self.store.start()

    def take_in(self, event: Event | SessionEvent) -> None:
        """Keep what happened."""
        self.log.take_in(event)
        if self.store is not None:
            self.store.record(event)

    def close(self) -> None:
        """Write what is left, and wait for it; what goes wrong from here on goes to stderr."""
        self._tell = _print
        if self.store is not None:
            self.store.close()
        self.log.close()


def find_desk(data_dir: str | PathLike[str] | None = None) -> Desk:
    """Return the desk of the user, or the one in a folder; reads the settings, makes no file.

    Args:
        data_dir: What `--data-dir` names.
    """
    places = find_places(data_dir)
    read = read_settings(places.settings)
    return Desk(places, read.settings, read.notices)
