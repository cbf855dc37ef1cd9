"""Where the app keeps things."""

from pathlib import Path

import pytest

from mlxspec.loading.records import cache_folder
from mlxspec_app.user.paths import Paths, find_paths


@pytest.fixture(autouse=True)
def _no_home(monkeypatch):
    monkeypatch.delenv("MLXSPEC_HOME", raising=False)


def below(folder):
    names = (
        "chats.sqlite3",
        "learned",
        "prefixes",
        "unsent.txt",
        "settings.toml",
        "traces",
        "logs",
    )
    return Paths(*(folder / name for name in names))


def test_the_platform_has_a_place_for_each_kind(monkeypatch, tmp_path):
    for kind in ("DATA", "CONFIG", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind))
    places = find_paths()
    assert places.store.parent.name == places.settings.parent.name == "mlxspec"
    assert places.learned.parent == places.traces.parent == places.store.parent
    assert len({places.store, places.settings, places.traces, places.logs}) == 4


def test_one_variable_moves_everything_and_the_downloads(monkeypatch, tmp_path):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path))
    assert find_paths() == below(tmp_path)
    assert cache_folder() == tmp_path


def test_a_folder_on_the_command_line_comes_first(monkeypatch, tmp_path):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    assert find_paths(tmp_path / "data") == below(tmp_path / "data")


def test_a_folder_may_be_relative_or_begin_at_home(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert find_paths("here") == below(tmp_path / "here")
    assert find_paths("~/there") == below(Path.home() / "there")


def test_an_empty_name_chooses_nothing(monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", "")
    assert find_paths("") == find_paths()


def test_nothing_is_made(tmp_path):
    find_paths(tmp_path / "data")
    assert list(tmp_path.iterdir()) == []
