"""Runs the server until it is told to stop: Ctrl+C or SIGTERM end it when its replies are over."""

import uvicorn

from mlxspec_server.server import Server
from mlxspec_server.settings import ServerSettings
from mlxspec_server.shelf import Shelf

_LAST_REPLIES_S = 10  # that a stopping server gives the replies in progress


def serve(shelf: Shelf, settings: ServerSettings, log_level: str = "INFO") -> None:
    """Answer requests until the process is told to stop."""
    server = Server.of(shelf, settings)
    config = uvicorn.Config(
        server.app(),
        host=settings.host,
        port=settings.port,
        log_level=log_level.lower(),
        timeout_graceful_shutdown=_LAST_REPLIES_S,
        server_header=False,
    )
    uvicorn.Server(config).run()
