"""Runs the server until Ctrl+C or SIGTERM; limits the number and the idle time of connections."""

import asyncio
import logging
import resource
import signal
import socket
import traceback
from collections.abc import Callable
from typing import Any, ClassVar

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from mlxspec_server.body import Refusal
from mlxspec_server.server import Server
from mlxspec_server.settings import LAST_REPLIES_S, ServerSettings
from mlxspec_server.shelf import Shelf

_LAST_ROUND_S = 30  # beyond the last replies, for the round in progress
_ROOM_S = 2  # after this time a connection may be free
_OTHER_FILES = 256  # of models, Python, and later loads
_LOGGERS = ("uvicorn.access", "uvicorn.error", "asyncio", "mlxspec_server.engine_thread")


def listen(settings: ServerSettings) -> socket.socket:
    """Return a listening socket for the settings."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        where = f"{settings.host}, port {settings.port}"
        why = f"cannot listen on {where}: {error.strerror}; name another with --host and --port"
        raise OSError(why) from error


def serve(
    shelf: Shelf,
    settings: ServerSettings,
    listening: socket.socket,
    log_level: str = "INFO",
    when_ready: Callable[[], None] = lambda: None,
) -> None:
    """Answer requests until the process is told to stop; Ctrl+C raises at the end.

    Only the level "DEBUG" may log texts of users. `when_ready` is called when it can be asked.
    """
    _allow_files(settings.max_connections + _OTHER_FILES)
    server = Server(shelf, settings)
    config = config_of(server, log_level)
    if log_level != "DEBUG":
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(_without_texts)
    # Uvicorn raises the signal again at the end, and the default handler would kill the process.
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    running = _Uvicorn(config, server, when_ready)
    try:
        running.run(sockets=[listening])
    finally:
        signal.signal(signal.SIGTERM, before)


def config_of(server: Server, log_level: str) -> uvicorn.Config:
    """Return the uvicorn configuration of a server."""
    return uvicorn.Config(
        server.app(),
        http=type("Bounded", (BoundedProtocol,), {"settings": server.settings}),
        ws="none",  # an upgraded connection would escape the limits
        log_level=log_level.lower(),
        timeout_graceful_shutdown=LAST_REPLIES_S + _LAST_ROUND_S,
        server_header=False,
    )


def _allow_files(count: int) -> None:
    """Raise the limit of open files if allowed: macOS starts with 256, connections included."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        most = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _without_texts(record: logging.LogRecord) -> bool:
    """Remove from a log record what a client may have written: queries and error messages."""
    if isinstance(record.args, tuple):  # an access record has path and query as one text
        record.args = tuple(
            value.partition("?")[0] if isinstance(value, str) else value for value in record.args
        )
    if record.exc_info and record.exc_info[0]:
        kind, _, trace = record.exc_info
        place = traceback.extract_tb(trace)[-1]
        record.msg = f"{kind.__name__} at {place.filename}, line {place.lineno}"
        record.args = record.exc_info = record.exc_text = None
    return True


class BoundedProtocol(H11Protocol):
    """One connection, with limits that uvicorn does not have; `config_of` sets the settings.

    uvicorn alone waits forever for the rest of a request, and for a client that does not read.
    """

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
        refusal = Refusal(503, f"all {most} connections are in use: ask again", retry_s=_ROOM_S)
        answer = refusal.answer(scope["path"])
        answer.headers["Connection"] = "close"
        await answer(scope, receive, send)


class _Uvicorn(uvicorn.Server):
    """Calls `when_ready`, and ends the replies before it waits for them."""

    def __init__(
        self, config: uvicorn.Config, server: Server, when_ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._app_server, self._when_ready = server, when_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._when_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        ending = asyncio.create_task(self._app_server.end_replies())
        await super().shutdown(sockets)
        ending.cancel()
