"""What the tests of the app share."""

from types import SimpleNamespace

import pytest

from mlxspec_app.sessions import engine_session
from tests.support.quick_app import hurry
from tests.support.store_files import open_recorder

hurry()


@pytest.fixture
def recorder(tmp_path):
    """A recorder on a new store."""
    recorder = open_recorder(tmp_path / "chats.sqlite3")
    yield recorder
    recorder.close()


@pytest.fixture
def writer(recorder):
    """The writer of that store."""
    return recorder.writer


@pytest.fixture(autouse=True)
def no_search_for_garbage(monkeypatch):
    """A session frees models before it loads others; among all objects of tests that is slow."""
    monkeypatch.setattr(engine_session, "gc", SimpleNamespace(collect=lambda: 0))
