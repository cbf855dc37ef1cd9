"""Downloads from a local hub with the real client: complete, stopped, resumed, offline."""

from functools import partial

import pytest
from huggingface_hub import snapshot_download

from mlxspec.errors import ModelNotFoundError
from mlxspec.loading.fetch.sources import find_local, find_source
from tests.support.fake_hub import serving
from tests.support.model_folders import save_folder

BIG = bytes(11 << 20)  # the client reports after each 10 MiB


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


def test_weights_whose_tokenizer_did_not_come_along_are_completed(hub):
    folder = find_source("org/tiny", lambda done, total: None).path
    (folder / "tokenizer.json").unlink()
    hub.sent.clear()
    find_source("org/tiny", lambda done, total: None)
    assert (folder / "tokenizer.json").is_file()


def test_a_hub_that_cannot_be_reached_says_what_to_do(tmp_path, monkeypatch):
    fetch_from(monkeypatch, tmp_path, "http://127.0.0.1:9")
    with pytest.raises(ModelNotFoundError, match=r"org/tiny is not cached .* connect to the net"):
        find_source("org/tiny", lambda done, total: None)
