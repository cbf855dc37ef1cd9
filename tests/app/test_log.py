"""What the app notes for later readers: errors, and frames that came late."""

from pathlib import Path

import pytest

from mlxspec.trace.events import GenerationFailed, TurnStarted
from mlxspec_app.conversation.events import SessionFailed
from mlxspec_app.frames import FrameClock
from mlxspec_app.user.log import AppLog
from mlxspec_app.user.paths import find_paths
from mlxspec_app.user_data import UserData
from tests.support.app_driver import Clock, chat


@pytest.fixture
def log(tmp_path):
    log = AppLog(tmp_path / "logs")
    yield log
    log.close()


@pytest.fixture
def written(tmp_path):
    return lambda: (tmp_path / "logs" / "app.log").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "event", [GenerationFailed(1.0, "by zero", "Traceback ..."), SessionFailed("by zero", "Trace")]
)
def test_an_error_is_noted_with_its_traceback(log, written, event):
    log.record(event)
    assert "ERROR by zero\nTrace" in written()


def test_what_is_said_is_not_noted(log, tmp_path):
    log.record(TurnStarted("user", "a secret"))
    assert not (tmp_path / "logs").exists()


def test_a_log_that_cannot_be_written_is_done_without(tmp_path):
    (tmp_path / "logs").write_text("in the way")
    log = AppLog(tmp_path / "logs")
    log.note("frames")
    log.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a full disk to test with")
def test_a_log_on_a_full_disk_is_done_without_a_word(tmp_path, capsys):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "app.log").symlink_to("/dev/full")
    log = AppLog(tmp_path / "logs")
    log.note("frames")
    log.record(GenerationFailed(1.0, "by zero", "Traceback ..."))
    log.close()
    assert capsys.readouterr().err == ""


def test_frames_on_time_are_not_late():
    clock = Clock()
    frames = FrameClock(0.1, clock)
    for _ in range(5):
        frames.tick()
        clock.now += 0.1
    assert frames.late_ms(99) == pytest.approx(0.0, abs=1e-9)


def test_a_late_frame_counts_by_what_it_missed():
    clock = Clock()
    frames = FrameClock(0.1, clock)
    for gap in (0.1, 0.1, 0.35, 0.1):
        frames.tick()
        clock.now += gap
    frames.tick()
    assert frames.late_ms(50) == pytest.approx(0.0, abs=1e-9)
    assert frames.late_ms(99) == pytest.approx(250.0)


def test_a_pause_is_not_lateness():
    clock = Clock()
    frames = FrameClock(0.1, clock)
    frames.tick()
    frames.pause()
    clock.now += 9.0
    frames.tick()
    assert frames.describe() == "0 frames, late p50 0.0 ms, p99 0.0 ms"


async def test_leaving_the_chat_notes_how_its_frames_came(tmp_path, written):
    user_data = UserData(find_paths(tmp_path))
    async with chat(user_data=user_data) as driver:
        await driver.say("hello")
    user_data.close()
    assert "frames, late p50" in written()
