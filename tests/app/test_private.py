"""What the app keeps is for its owner alone, even where new files are usually open to all."""

import os
import stat

import pytest

from mlxspec.trace.events import GenerationFailed
from mlxspec_app.settings.file import change_settings
from mlxspec_app.store.database import open_for_writing
from mlxspec_app.store.traces import ReplyTraces
from mlxspec_app.store.writer import Writer
from mlxspec_app.user.log import log_error
from mlxspec_app.user.paths import find_paths
from tests.support.store_files import reply_events, say


@pytest.fixture(params=[0, 0o022, 0o077], ids=oct)
def umask(request):
    """Has new files be open to as many as there can be, to some, and to none."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_every_file_and_folder_is_private(tmp_path, umask):
    places = find_paths(tmp_path / "new" / "folder")
    change_settings(places.settings, {"ink": "off"})
    writer = Writer(open_for_writing(places.store, pytest.fail))
    say(writer, writer.new_chat(), "something secret")
    log_error(GenerationFailed(1.0, "by zero"), places.logs)
    traces = ReplyTraces(places.traces, pytest.fail)
    name = traces.begin(2, [])
    for event in reply_events("a secret"):
        traces.write(event)
    traces.end()
    found = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
    names = {path.name for path in found}
    assert {name, "chats.sqlite3", "chats.sqlite3-wal", "settings.toml", "app.log"} <= names
    for path in found:
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path
    writer.close()


def test_a_folder_that_is_there_stays_as_its_owner_made_it(tmp_path):
    tmp_path.chmod(0o750)
    change_settings(tmp_path / "settings.toml", {"ink": "off"})
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o750
