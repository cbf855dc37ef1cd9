"""A hub on this machine, with enough of the protocol to download a repository."""

import hashlib
import json
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler

from tests.support.http_servers import running

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """Serves one repository.

    Attributes:
        files: Content by file name.
        sent: Names of the files whose content was requested, in order.
        url: Its address.
    """

    def __init__(self, files):
        self.files = files
        self.sent = []
        self.url = ""

    def tree(self):
        return [
            {
                "type": "file",
                "path": name,
                "size": len(content),
                "oid": etag(content),
                "lfs": {"oid": etag(content), "size": len(content), "pointerSize": 1},
            }
            for name, content in self.files.items()
        ]


def etag(content):
    return hashlib.sha256(content).hexdigest()


@contextmanager
def serving(files):
    """Run a hub that holds one repository with these files."""
    hub = FakeHub(files)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_HEAD(self):
            self.answer(with_body=False)

        def do_GET(self):
            self.answer(with_body=True)

        def answer(self, *, with_body):
            path = self.path.partition("?")[0]
            headers = {"X-Repo-Commit": COMMIT}
            if path.startswith("/api/"):
                facts = hub.tree() if "/tree/" in path else {"id": "org/tiny", "sha": COMMIT}
                body = json.dumps(facts).encode()
            else:
                name = path.rpartition("/")[2]
                body = hub.files[name]
                headers["ETag"] = f'"{etag(body)}"'
                if with_body:
                    hub.sent.append(name)
            self.send_response(200)
            headers["Content-Length"] = str(len(body))
            for key, value in headers.items():
                self.send_header(key, value)
            self.end_headers()
            if with_body:
                with suppress(ConnectionError):  # the client may stop half-way
                    self.wfile.write(body)

    with running(Handler) as port:
        hub.url = f"http://127.0.0.1:{port}"
        yield hub
