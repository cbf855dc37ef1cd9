"""The app is painted before MLX is imported, and what stops a model is told clearly."""

import subprocess
import sys

import pytest

from mlxspec_app.bench.startup import start
from mlxspec_app.conversation.events import SessionReady
from mlxspec_cli.main import main
from tests.support.app_driver import rows, running
from tests.support.paths import TRACES
from tests.support.scripted_session import ScriptedSession

TRACE = str(TRACES / "chat.jsonl")
WITHOUT_MLX = "import sys; sys.modules['mlx'] = sys.modules['mlx.core'] = None; "
ON_A_TERMINAL = "sys.stdin.isatty = sys.stdout.isatty = lambda: True; "


class NotingSession(ScriptedSession):
    """Notes what is on the screen when it is started."""

    def __init__(self):
        super().__init__(SessionReady())
        self.app = None
        self.seen = ""

    def start(self):
        super().start()
        self.seen = "\n".join(rows(self.app.screen))


async def test_the_session_begins_once_a_frame_is_there(monkeypatch):
    session = NotingSession()
    monkeypatch.setattr("mlxspec_app.app.MlxspecApp.on_load", note_app(session), raising=False)
    async with running(session):
        assert session.orders == ["start"]
        assert "mlxspec" in session.seen


def note_app(session):
    def on_load(app):
        session.app = app

    return on_load


def test_a_frame_is_painted_on_a_terminal():
    seconds, processor_s = start(["replay", TRACE])
    assert 0 < seconds < 30
    assert processor_s > 0


def test_a_command_that_paints_nothing_is_said_to():
    with pytest.raises(RuntimeError, match=r"no frame was painted.*cannot read"):
        start(["replay", "no-such-file.jsonl"])


def test_a_chat_without_mlx_says_so_before_the_screen_opens():
    program = "import sys; from mlxspec_cli import main; sys.exit(main.main(['chat']))"
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MLX + ON_A_TERMINAL + program],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "MLX cannot be imported, so no model can run" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("option", ["--temp=-1", "--top-p=2", "--max-tokens=-1"])
def test_a_bad_setting_is_told_before_the_screen_opens(option, monkeypatch, capsys):
    monkeypatch.setattr("mlxspec_cli.commands.chat.can_draw", lambda: True)
    monkeypatch.setattr("mlxspec_app.run.run_chat", lambda *args, **more: pytest.fail("it opens"))
    assert main(["chat", option]) == 2
    assert "must be" in capsys.readouterr().err
