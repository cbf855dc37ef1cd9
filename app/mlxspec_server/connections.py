"""Limits connections: their number, and how long a client may stay idle.

uvicorn alone waits forever for the rest of a request, and for a client that does not read its
answer.
"""

import asyncio
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from mlxspec_server.refusals import Refusal
from mlxspec_server.settings import ServerSettings

_RETRY_S = 2


class BoundedProtocol(H11Protocol):
    """One connection; `bounded` sets the settings."""

    settings: ClassVar[ServerSettings]

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._unsent = ""  # the part of a request that is incomplete: "header", "body" or ""
        self._since_s = 0.0
        self._sending: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # any unsent byte pauses writing
        self._make_room()
        self._expect("header")

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect("")
        super().connection_lost(exc)  # resumes writing

    # ---- a client that does not send -------------------------------------------------------

    def handle_events(self) -> None:
        super().handle_events()
        state, (rest, _) = self.conn.their_state, self.conn.trailing_data
        if state is h11.SEND_BODY:
            self._expect("body")
        else:  # uvicorn's own timeout applies between two requests
            self._expect("header" if state is h11.IDLE and rest else "")

    def _expect(self, unsent: str) -> None:
        """Start the timeout for a part of a request, at its first byte."""
        if unsent == self._unsent:
            return
        if self._sending is not None:
            self._sending.cancel()
        self._unsent, self._since_s = unsent, self.loop.time()
        times = {"header": self.settings.header_s, "body": self.settings.body_s}
        if unsent:
            self._sending = self.loop.call_later(times[unsent], self.transport.abort)

    # ---- a client that does not read -------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()

    def _watch_reading(self, unread: float = float("inf")) -> None:
        """Close the connection if the client reads nothing for `stall_s`."""
        left = self.transport.get_write_buffer_size()
        if left >= unread:
            self.transport.abort()
        else:
            self._reading = self.loop.call_later(self.settings.stall_s, self._watch_reading, left)

    # ---- too many --------------------------------------------------------------------------

    def _make_room(self) -> None:
        """Close the connection that has been idle longest; if none is idle, refuse this one.

        Otherwise idle connections could lock everyone else out.
        """
        if len(self.connections) <= self.settings.max_connections:
            return
        others = [one for one in self.connections if isinstance(one, BoundedProtocol)]
        idle = [one for one in others if one is not self and one.conn.their_state is h11.IDLE]
        if not idle:
            self.app = self._refuse
            return
        oldest = min(idle, key=lambda one: one._since_s)
        self.connections.discard(oldest)  # at once: the connection reports its loss only later
        oldest.transport.abort()

    async def _refuse(self, scope: Any, receive: Any, send: Any) -> None:
        most = self.settings.max_connections
        refusal = Refusal(503, f"all {most} connections are in use: ask again", retry_s=_RETRY_S)
        answer = refusal.answer(scope["path"])
        answer.headers["Connection"] = "close"
        await answer(scope, receive, send)


def bounded(settings: ServerSettings) -> type[BoundedProtocol]:
    """Return the protocol class of a server with these settings."""
    return type("Bounded", (BoundedProtocol,), {"settings": settings})
