"""The live feed: every event of every reply, for whoever watches the server.

`GET /v1/events` is a stream of server-sent events named `reply`. Their data is
`{"model": ..., "reply": ..., "event": ...}`: `event` is one line of a trace (`mlxspec.trace.file`),
so whatever draws a recording can draw the feed. A watcher that reads too slowly loses events, and
is told how many by an event named `lost`.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress

from mlxspec.trace.events import Event
from mlxspec.trace.file import event_to_json

_MOST_HELD = 2000  # events that wait for one watcher


class _Watcher:
    """One that watches, in the loop that serves it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.queue: asyncio.Queue[str] = asyncio.Queue(_MOST_HELD)  # "" ends it
        self.num_lost = 0

    def put(self, line: str) -> None:
        if self.queue.full():
            self.num_lost += 1
        else:
            self.queue.put_nowait(line)


class Feed:
    """Sends events to all who watch; nothing is kept for those who come later."""

    def __init__(self) -> None:
        self._watchers: list[_Watcher] = []

    def publish(self, model: str, name: str, event: Event) -> None:
        """Send an event of a reply; called in the engine thread, costs nothing unwatched."""
        if not self._watchers:
            return
        names = f'"model": {json.dumps(model)}, "reply": {json.dumps(name)}'
        line = f'event: reply\ndata: {{{names}, "event": {event_to_json(event)}}}\n\n'
        for watcher in list(self._watchers):
            with suppress(RuntimeError):  # its loop is closed
                watcher.loop.call_soon_threadsafe(watcher.put, line)

    def close(self) -> None:
        """End the streams of all who watch; called in their loop."""
        for watcher in self._watchers:
            if watcher.queue.full():
                watcher.queue.get_nowait()
            watcher.queue.put_nowait("")

    async def lines(self, keep_alive_s: float) -> AsyncIterator[str]:
        """Yield the events from now on, and a comment after every silence."""
        watcher = _Watcher()
        self._watchers.append(watcher)
        try:
            yield ": the events of replies from now on\n\n"
            while True:
                try:
                    line = await asyncio.wait_for(watcher.queue.get(), keep_alive_s)
                except TimeoutError:
                    line = ": keep-alive\n\n"
                if not line:
                    return
                yield line
                if watcher.num_lost:
                    lost, watcher.num_lost = watcher.num_lost, 0
                    yield f'event: lost\ndata: {{"num_lost": {lost}}}\n\n'
        finally:
            self._watchers.remove(watcher)
