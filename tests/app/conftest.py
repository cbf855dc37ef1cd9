"""What the tests of the app share."""

import pytest

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
