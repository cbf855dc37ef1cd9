"""Exports the conversation to a file in the background and shows the path."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from mlxspec.errors import TraceError
from mlxspec.trace.events import Event
from mlxspec_app.controllers.feed import Feed
from mlxspec_app.controllers.page import Page
from mlxspec_app.export.filing import FORCE, FORMATS, FilingOrder, file_away, read_order
from mlxspec_app.playback.events_of import events_of


class Exporter:
    """Exports the conversation as it is when the command is given."""

    def __init__(self, feed: Feed, page: Page, title: Callable[[], str] = lambda: "") -> None:
        """`title` returns the current title of the chat; "" for none."""
        self._feed, self._page, self._title = feed, page, title

    def export(self, text: str) -> None:
        """Write the requested file, or show why this is impossible.

        Without an argument it writes the page and lists the other formats.
        """
        try:
            order = read_order(text)
        except ValueError as error:
            self._page.notify(str(error), severity="warning", timeout=4)
            return
        events = events_of(self._feed.state)  # now, as the conversation may continue meanwhile
        hint = "" if text.strip() else _others(order)
        export = partial(self._export, order, events, self._title(), hint)
        self._page.run_beside(export, exit_on_error=False)

    async def _export(
        self, order: FilingOrder, events: Sequence[Event], title: str, hint: str
    ) -> None:
        try:
            filed = await asyncio.to_thread(file_away, order, events, title)
        except FileExistsError as error:
            problem = f"{error.filename} already exists: name another file, or add {FORCE}"
        except TraceError:
            problem = "there is no reply to export yet"
        except OSError as error:
            problem = f"{error.filename} cannot be written: {error.strerror}"
        else:
            size = f"{filed.size / 1000:.0f} kB"
            said = f"{filed.path.resolve()} ({size}){hint}"
            self._page.notify(said, title="Exported", timeout=6)
            return
        self._page.notify(problem, severity="warning", timeout=6)


def _others(order: FilingOrder) -> str:
    names = ", ".join(name for name in FORMATS if name != order.format.name)
    return f"; other formats: /export {names}"
