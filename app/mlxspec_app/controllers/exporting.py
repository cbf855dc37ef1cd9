"""Exports the conversation to a file, in the background, and shows the path."""

import asyncio
from collections.abc import Sequence
from functools import partial

from mlxspec.errors import TraceError
from mlxspec.trace.events import Event
from mlxspec_app.controllers.feed import Feed
from mlxspec_app.controllers.page import Page
from mlxspec_app.export.filing import FORCE, FilingOrder, file_away, read_order
from mlxspec_app.playback.events_of import events_of


class Exporter:
    """Exports the conversation as it is at the time of the command."""

    def __init__(self, feed: Feed, page: Page) -> None:
        """Make a controller that has written nothing yet."""
        self._feed, self._page = feed, page

    def export(self, text: str) -> None:
        """Write the file that a command asks for, or show why this is impossible."""
        try:
            order = read_order(text)
        except ValueError as error:
            self._page.notify(str(error), severity="warning", timeout=4)
            return
        events = events_of(self._feed.state)  # now: the conversation may go on meanwhile
        self._page.run_beside(partial(self._export, order, events), exit_on_error=False)

    async def _export(self, order: FilingOrder, events: Sequence[Event]) -> None:
        try:
            filed = await asyncio.to_thread(file_away, order, events)
        except FileExistsError as error:
            problem = f"{error.filename} is there already: name another file, or add {FORCE}"
        except TraceError:
            problem = "there is no reply to export yet"
        except OSError as error:
            problem = f"{error.filename} cannot be written: {error.strerror}"
        else:
            size = f"{filed.size / 1000:.0f} kB"
            self._page.notify(f"{filed.path.resolve()} ({size})", title="Exported", timeout=6)
            return
        self._page.notify(problem, severity="warning", timeout=6)
