"""One connection between rank 0 and another rank: frames over TCP, and heartbeats.

A collective of MLX neither times out nor raises when the other side is gone. So a separate socket
carries the messages, wakes a waiting thread without a busy loop, and closes when the other process
ends for any reason.
"""

import json
import select
import socket
import struct
import threading
from contextlib import suppress
from typing import Any

BEAT_S = 1.0
"""Seconds between two heartbeats."""
SILENCE_S = 10.0
"""Seconds without a heartbeat after which a rank counts as hung."""

_HEAD = struct.Struct("<BI")  # kind of frame, bytes of its content
_MOST = 1 << 28  # bytes of a frame; more is not from us
_BEAT, JSON, ORDERS = 0, 1, 2


class WireError(Exception):
    """The connection has ended, or the other side is silent."""


class Wire:
    """Sends and receives frames; any thread may send, one thread receives.

    Sending raises WireError if the other side is gone.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A machine that is switched off sends nothing, so the kernel probes it.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, name):  # the first one has another name on macOS
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def send_orders(self, message: bytes) -> None:
        self._send(ORDERS, message)

    def send(self, **facts: Any) -> None:
        self._send(JSON, json.dumps(facts).encode())

    def beat(self) -> None:
        """Send a heartbeat; do nothing if the other side is gone."""
        with suppress(WireError):
            self._send(_BEAT, b"")

    def _send(self, kind: int, content: bytes) -> None:
        try:
            with self._sending:
                self._socket.sendall(_HEAD.pack(kind, len(content)) + content)
        except OSError as error:
            raise WireError(f"the connection has ended: {error}") from error

    def receive(self, silence_s: float | None = None) -> dict[str, Any] | bytes:
        """Wait for the next frame: named facts, or a message of orders.

        After `silence_s` seconds without any frame, heartbeats included, the other side counts as
        hung; None waits forever.

        Raises:
            WireError: The other side is gone, or silent.
        """
        while True:
            kind, size = _HEAD.unpack(self._read(_HEAD.size, silence_s))
            if size > _MOST:
                raise WireError(f"a frame of {size} bytes is not from mlxspec")
            content = self._read(size, silence_s)
            if kind == ORDERS:
                return content
            if kind == JSON:
                facts: dict[str, Any] = json.loads(content)
                return facts

    def _read(self, size: int, silence_s: float | None) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                if not select.select([self._socket], [], [], silence_s)[0]:
                    raise WireError(f"no sign of life for {silence_s:.0f} s")
                part = self._socket.recv(min(size - len(parts), 1 << 16))
            except (OSError, ValueError) as error:  # ValueError: closed by another thread
                raise WireError(f"the connection has ended: {error}") from error
            if not part:
                raise WireError("the process has ended")
            parts += part
        return bytes(parts)

    def close(self) -> None:
        """End the connection; a thread that waits in `receive`, on either side, gets an error."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
