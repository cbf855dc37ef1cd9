"""Runs the server until Ctrl+C or SIGTERM; running replies may finish first."""

import asyncio
import logging
import resource
import signal
import socket
import traceback
from collections.abc import Callable

import uvicorn

from mlxspec_server.connections import bounded
from mlxspec_server.server import Server
from mlxspec_server.settings import ServerSettings
from mlxspec_server.shelf import Shelf

_LAST_ROUND_S = 30  # beyond the last replies, for the round in progress
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
    server = Server.of(shelf, settings)
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
        http=bounded(server.settings),
        ws="none",  # an upgraded connection would escape the limits
        log_level=log_level.lower(),
        timeout_graceful_shutdown=round(server.settings.last_replies_s) + _LAST_ROUND_S,
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
