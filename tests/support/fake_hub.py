"""A hub on this machine, for the hub's real client: one repository, and connections that drop."""

import hashlib
import json
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace

from huggingface_hub import constants, snapshot_download

from tests.support.http_servers import running
from tests.support.hub_cache import COMMIT

_URL = "/{repo_id}/resolve/{revision}/{filename}"


def etag(content):
    return hashlib.sha256(content).hexdigest()


@contextmanager
def serving(files):
    """Run a hub that holds one repository with these files.

    It notes which were `sent`, and from which byte on. Each number in `drops` is the byte of a
    file at which one connection ends; `lies` replaces the content of files that are sent.
    """
    remote = SimpleNamespace(files=files, sent=[], starts=[], drops=[], lies={})
    tree = [
        {
            **{"type": "file", "path": name, "size": len(content), "oid": etag(content)},
            "lfs": {"oid": etag(content), "size": len(content), "pointerSize": 1},
        }
        for name, content in files.items()
    ]

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_HEAD(self):
            self.answer(with_body=False)

        def do_GET(self):
            self.answer(with_body=True)

        def answer(self, *, with_body):
            path = self.path.partition("?")[0]
            headers, start = {"X-Repo-Commit": COMMIT}, 0
            if path.startswith("/api/"):
                facts = tree if "/tree/" in path else {"id": "org/tiny", "sha": COMMIT}
                body = json.dumps(facts).encode()
            else:
                name = path.rpartition("/")[2]
                body = files[name]
                headers["ETag"] = f'"{etag(body)}"'
                start = int(self.headers.get("Range", "bytes=0-")[6:].partition("-")[0])
                body = remote.lies.get(name, body)
                if with_body:
                    remote.sent.append(name)
                    remote.starts.append((name, start))
            end = len(body)
            if start:
                headers["Content-Range"] = f"bytes {start}-{end - 1}/{end}"
            self.send_response(206 if start else 200)
            for key, value in {**headers, "Content-Length": str(end - start)}.items():
                self.send_header(key, value)
            self.end_headers()
            if with_body:
                if remote.drops and start < remote.drops[0] < end:
                    end = remote.drops.pop(0)
                    self.close_connection = True
                with suppress(ConnectionError):  # the client may stop half-way
                    self.wfile.write(body[start:end])

    with running(Handler) as port:
        remote.url = f"http://127.0.0.1:{port}"
        yield remote


def fetch_from(monkeypatch, tmp_path, url):
    """Let downloads come from a hub at `url`, into a cache below `tmp_path`."""
    cache = tmp_path / "cache"
    fetch = partial(snapshot_download, cache_dir=cache, endpoint=url, etag_timeout=2)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + _URL)
    monkeypatch.setattr("mlxspec.loading.fetch.hub.snapshot_download", fetch)
    monkeypatch.setattr("mlxspec.loading.fetch.hub.HF_HUB_CACHE", str(cache))
