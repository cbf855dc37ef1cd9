"""Downloads from a local hub with the real client: complete, stopped, resumed, offline."""

import hashlib
import json
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace

import pytest
from huggingface_hub import snapshot_download

from mlxspec.errors import ModelNotFoundError
from mlxspec.loading.fetch.sources import find_local, find_source
from tests.support.http_servers import running
from tests.support.hub_cache import COMMIT
from tests.support.model_folders import save_folder

BIG = bytes(11 << 20)  # the client reports after each 10 MiB


def etag(content):
    return hashlib.sha256(content).hexdigest()


@contextmanager
def serving(files):
    """Run a hub that holds one repository with these files; it notes which were `sent`."""
    hub = SimpleNamespace(files=files, sent=[])
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
            headers = {"X-Repo-Commit": COMMIT}
            if path.startswith("/api/"):
                facts = tree if "/tree/" in path else {"id": "org/tiny", "sha": COMMIT}
                body = json.dumps(facts).encode()
            else:
                name = path.rpartition("/")[2]
                body = files[name]
                headers["ETag"] = f'"{etag(body)}"'
                if with_body:
                    hub.sent.append(name)
            self.send_response(200)
            for key, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            if with_body:
                with suppress(ConnectionError):  # the client may stop half-way
                    self.wfile.write(body)

    with running(Handler) as port:
        hub.url = f"http://127.0.0.1:{port}"
        yield hub


class StoppedError(Exception):
    """The user does not want to wait."""


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub that holds a tiny model, a page that nobody needs, and one large file of weights."""
    folder = save_folder(tmp_path / "original")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    files |= {"README.md": b"# tiny", "model.safetensors": BIG}
    with serving(files) as hub:
        fetch_from(monkeypatch, tmp_path, hub.url)
        yield hub


def fetch_from(monkeypatch, tmp_path, url):
    cache = tmp_path / "cache"
    fetch = partial(snapshot_download, cache_dir=cache, endpoint=url, etag_timeout=2)
    monkeypatch.setattr("mlxspec.loading.fetch.hub.snapshot_download", fetch)
    monkeypatch.setattr("mlxspec.loading.fetch.hub.HF_HUB_CACHE", str(cache))


def stop_in_the_large_file(done, total):
    if done > 10 << 20:
        raise StoppedError


def test_only_what_is_needed_is_fetched_and_only_once(hub, capsys):
    seen = []
    find_source("org/tiny", lambda done, total: seen.append((done, total)))
    assert "README.md" not in hub.sent
    assert seen[-1][0] == seen[-1][1] > len(BIG)
    hub.sent.clear()
    find_source("org/tiny")
    assert hub.sent == []
    assert capsys.readouterr().err == ""


def test_what_was_fetched_needs_no_network_any_more(hub, tmp_path, monkeypatch):
    whole = find_source("org/tiny", lambda done, total: None)
    fetch_from(monkeypatch, tmp_path, "http://127.0.0.1:9")
    assert find_source("org/tiny") == find_local("org/tiny") == whole


def test_a_stopped_download_keeps_complete_files_and_can_be_resumed(hub):
    with pytest.raises(StoppedError):
        find_source("org/tiny", stop_in_the_large_file)
    hub.sent.clear()
    found = find_source("org/tiny", lambda done, total: None)
    assert (found.path / "model.safetensors").read_bytes() == BIG
    assert "model.safetensors" in hub.sent  # the file that was cut off begins anew
    assert len(hub.sent) < len(hub.files) - 1


def test_a_download_without_room_is_not_begun(hub, monkeypatch):
    usage = type("Usage", (), {"free": 5_000_000})
    monkeypatch.setattr("shutil.disk_usage", lambda place: usage)
    with pytest.raises(ModelNotFoundError, match=r"takes 12 MB, .* has 5 MB free: make room"):
        find_source("org/tiny", lambda done, total: None)
    assert hub.sent == []


@pytest.mark.parametrize("lost", ["tokenizer.json", "model.safetensors"])
def test_a_file_that_did_not_come_along_is_fetched(hub, lost):
    folder = find_source("org/tiny", lambda done, total: None).path
    (folder / lost).unlink()
    hub.sent.clear()
    find_source("org/tiny", lambda done, total: None)
    assert (folder / lost).is_file()
