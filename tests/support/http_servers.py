"""Servers over HTTP that answer as a test says, each in a thread of its own."""

import threading
from contextlib import contextmanager
from http.server import ThreadingHTTPServer


@contextmanager
def running(handler):
    """A server of this machine whose requests a class of `http.server` answers: its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
