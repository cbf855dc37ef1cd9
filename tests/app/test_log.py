"""What the app notes for later readers: errors."""

from pathlib import Path

import pytest

from mlxspec.trace.events import GenerationFailed, TurnStarted
from mlxspec_app.conversation.events import SessionFailed
from mlxspec_app.user.log import log_error


@pytest.fixture
def written(tmp_path):
    return lambda: (tmp_path / "logs" / "app.log").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "event", [GenerationFailed(1.0, "by zero", "Traceback ..."), SessionFailed("by zero", "Trace")]
)
def test_an_error_is_noted_with_its_traceback(tmp_path, written, event):
    log_error(event, tmp_path / "logs")
    assert "ERROR by zero\nTrace" in written()


def test_what_is_said_is_not_noted(tmp_path):
    log_error(TurnStarted("user", "a secret"), tmp_path / "logs")
    assert not (tmp_path / "logs").exists()


def test_a_log_that_cannot_be_written_is_done_without(tmp_path):
    (tmp_path / "logs").write_text("in the way")
    log_error(GenerationFailed(1.0, "by zero"), tmp_path / "logs")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a full disk to test with")
def test_a_log_on_a_full_disk_is_done_without_a_word(tmp_path, capsys):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "app.log").symlink_to("/dev/full")
    log_error(GenerationFailed(1.0, "by zero", "Traceback ..."), tmp_path / "logs")
    assert capsys.readouterr().err == ""
