"""What the server tells of all replies: counts since its start, and a live feed of their events.

`GET /metrics` has the counts in Prometheus' text format. `GET /v1/events` is a stream of
server-sent events named `reply`. Their data is `{"model": ..., "reply": ..., "event": ...}`:
`event` is one line of a trace (`mlxspec.trace.file`), so code that draws a recording can draw the
feed. A client that connects late first receives the start of every running reply. A watcher that
reads too slowly loses events; an event named `lost` reports how many.

The engine thread hands events over without waiting. The event loop of the server formats them, and
only while there are watchers.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from threading import Lock
from typing import Any

from mlxspec.trace.events import Event, GenerationFailed, GenerationFinished, GenerationStarted
from mlxspec.trace.file import event_to_json

MOST_WATCHERS = 16
_LOG = logging.getLogger("uvicorn.error")  # the one that follows --log-level
_MOST_HELD = 2000  # events queued for one watcher

_COUNTED = {
    "prompt_tokens": "prompt_tokens",
    "cached_tokens": "reused_tokens",
    "generated_tokens": "generated_tokens",
    "draft_tokens": "drafted",
    "accepted_draft_tokens": "accepted",
    "drafted_rounds": "rounds",
    "plain_rounds": "plain_forwards",
}
"""The figure of a reply that each count adds up."""


class _Watcher:
    """One watching client, used in the event loop of the server."""

    def __init__(self, since: int) -> None:
        self.since = since  # number of the last event before it connected
        self.queue: asyncio.Queue[str] = asyncio.Queue(_MOST_HELD)  # "" ends the stream
        self.num_lost = 0


class Feed:
    """Counts replies, and sends events to all watchers; stores none for later ones."""

    def __init__(self) -> None:
        names = ("requests", "refused", "replies", *_COUNTED)
        self.counts = Counter(dict.fromkeys(names, 0))  # one thread alone changes each
        self._lock = Lock()
        self._watchers: list[_Watcher] = []
        self._loop: asyncio.AbstractEventLoop | None = None  # the loop of all watchers
        self._number = 0
        self._begun: dict[str, tuple[str, Event]] = {}  # start of each unfinished reply, by name

    def metrics(self, gauges: Mapping[str, float]) -> str:
        rows = [(f"{name}_total", "counter", str(count)) for name, count in self.counts.items()]
        rows += [(name, "gauge", str(value)) for name, value in gauges.items()]
        return "".join(
            f"# TYPE mlxspec_{name} {kind}\nmlxspec_{name} {value}\n" for name, kind, value in rows
        )

    @property
    def is_full(self) -> bool:
        return len(self._watchers) >= MOST_WATCHERS

    def publish(self, model: str, name: str, event: Event) -> None:
        """Count and send an event of a reply. Called in the engine thread; waits for no watcher."""
        if isinstance(event, GenerationFinished):
            self.counts["replies"] += 1
            _LOG.info("%s: %s", model, _figures(event.stats))
            self.counts.update({k: event.stats.get(field, 0) for k, field in _COUNTED.items()})
        with self._lock:
            self._number += 1
            if isinstance(event, GenerationStarted):
                self._begun[name] = (model, event)
            elif isinstance(event, GenerationFinished | GenerationFailed):
                self._begun.pop(name, None)
            number, loop = self._number, self._loop if self._watchers else None
        if loop is not None:
            with suppress(RuntimeError):  # the loop is closed: there is no reader
                loop.call_soon_threadsafe(self._spread, number, model, name, event)

    def close(self) -> None:
        """End the streams of all watchers; called in their event loop."""
        for watcher in self._watchers:
            if watcher.queue.full():
                watcher.queue.get_nowait()
            watcher.queue.put_nowait("")

    async def lines(self, keep_alive_s: float) -> AsyncIterator[str]:
        """Yield all events from now on, and a comment after every silence."""
        with self._lock:
            watcher = _Watcher(self._number)
            self._watchers.append(watcher)
            self._loop = asyncio.get_running_loop()
            begun = [(model, name, event) for name, (model, event) in self._begun.items()]
        try:
            yield ": the events of replies from now on\n\n"
            for one in begun:
                yield _line(*one)
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
            with self._lock:
                self._watchers.remove(watcher)

    def _spread(self, number: int, model: str, name: str, event: Event) -> None:
        line = _line(model, name, event)
        for watcher in self._watchers:
            if number > watcher.since:
                if watcher.queue.full():
                    watcher.num_lost += 1
                else:
                    watcher.queue.put_nowait(line)


def _figures(stats: Mapping[str, Any]) -> str:
    """Return how much a reply was, how fast, and how much of it was guessed; none of its text."""
    tokens = stats.get("generated_tokens", 0)
    share = f"{stats.get('accepted', 0) / (tokens or 1):.0%}".replace("%", " %")
    return f"{tokens} tokens, {stats.get('generation_tps', 0.0):.1f} tokens/s, {share} guessed"


def _line(model: str, name: str, event: Event) -> str:
    names = f'"model": {json.dumps(model)}, "reply": {json.dumps(name)}'
    # A lone surrogate is not UTF-8; backslashreplace writes it as \udXXX, as JSON does.
    told = event_to_json(event).encode("utf-8", "backslashreplace").decode()
    return f'event: reply\ndata: {{{names}, "event": {told}}}\n\n'
