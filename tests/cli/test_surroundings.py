"""Missing places, full disks, closed streams: one sentence, no traceback, and the chat goes on.

Every program here runs for real, in a process of its own.
"""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from mlxspec.chat.conversation import Conversation
from mlxspec.drafting.engines import prepare_loaded
from mlxspec.params import GenerationParams, Options
from tests.support.chat_folders import save_chat_folder
from tests.support.paths import ROOT
from tests.support.pty_terminal import Terminal
from tests.support.toy_chat import toy_target

SLOW_CHAT = str(ROOT / "tests/support/slow_chat.py")
HAS_FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
PLAIN_ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
CTRL_C = "\x03"
LIMITED = """
import resource, runpy, sys
size = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(save_chat_folder(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture
def run(tmp_path):
    """Run a command of mlxspec in a shell, which can close and redirect its streams."""

    def run_one(*argv, said=b"", streams="", **changed):
        settings = {"PYTHONPATH": os.pathsep.join(sys.path), "MLXSPEC_HOME": str(tmp_path)}
        settings = {**os.environ, **settings, **changed}
        return subprocess.run(
            ["sh", "-c", f'exec "$@" {streams}', "sh", sys.executable, "-m", "mlxspec", *argv],
            input=said,
            env={name: value for name, value in settings.items() if value is not None},
            capture_output=True,
            check=False,
        )

    return run_one


@contextmanager
def chat_at_terminal(*argv, **size):
    """A chat of the app, which ends well when the block is over."""
    terminal = Terminal([sys.executable, *argv], **size)
    try:
        yield terminal
        terminal.press(CTRL_C + CTRL_C)
        assert terminal.wait_for_end() == 0
    finally:
        terminal.close()
    assert b"Traceback" not in terminal.written


def plain(model, *more):
    return ("chat", "--plain", "--model", model, "--drafter", "none", "--max-tokens", "4", *more)


# ---- streams ------------------------------------------------------------------------------------


def test_a_chat_whose_streams_are_closed_just_ends(run, model):
    done = run("chat", *plain(model)[2:], streams="<&- >&-")
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr


def test_no_file_gets_the_number_of_a_closed_stream():
    program = (
        "import os; from mlxspec_cli.output import mend_streams; mend_streams();"
        "print('nobody reads this'); os._exit(os.open(os.devnull, os.O_RDONLY))"
    )
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", program], check=False
    )
    assert done.returncode >= 3


def test_in_a_locale_of_ascii_a_chat_goes_on_whatever_is_said(run, model):
    said = "hü 你\n".encode() + b"caf\xe9\n/help\n"
    done = run(*plain(model), said=said, **PLAIN_ASCII)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count(b"4 tokens") == 1  # the first line; of the second it is said
    assert b"mlxspec: the text is not UTF-8" in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Ctrl-D ends the chat" in done.stderr


@HAS_FULL
@pytest.mark.parametrize(
    ("command", "is_unbuffered"), [("models", "1"), ("models", ""), ("--help", "")]
)
def test_an_output_that_takes_nothing_is_one_sentence(run, command, is_unbuffered):
    done = run(command, streams=">/dev/full", PYTHONUNBUFFERED=is_unbuffered)
    assert done.returncode == 1
    told = "the output cannot be written: No space left on device; make room, or write elsewhere"
    assert done.stderr.decode().splitlines() == [f"mlxspec: {told}"]


@pytest.mark.parametrize("is_unbuffered", ["", "1"])
def test_a_reader_that_goes_early_is_no_error(is_unbuffered):
    with subprocess.Popen(
        [sys.executable, "-m", "mlxspec", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONUNBUFFERED": is_unbuffered,
        },
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


# ---- interpreters ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed", [{"PYTHONOPTIMIZE": "1"}, {"PYTHONWARNINGS": "error"}], ids=["-O", "-W error"]
)
def test_a_chat_goes_on_without_asserts_and_with_warnings_as_errors(run, model, changed):
    arguments = [word if word != "none" else "pool" for word in plain(model, "--temp", "0")]
    done = run(*arguments, said=b"hi\n/verify\n/retry\n", **changed)
    assert done.returncode == 0, done.stderr
    assert b"identical to plain decoding: 4 of 4 tokens" in done.stderr
    assert done.stderr.count(b"pool: 4 tokens") == 2


# ---- places -------------------------------------------------------------------------------------


def test_a_home_that_is_a_file_costs_what_would_be_kept_there(run, model, tmp_path):
    home = tmp_path / "home"
    home.touch()
    places = {"HOME": str(home), "MLXSPEC_HOME": None, "XDG_DATA_HOME": None}
    arguments = [word if word != "none" else "pool" for word in plain(model, "--temp", "0")]
    done = run(*arguments, said=b"hi\n", **places)
    assert done.returncode == 0
    assert b"4 tokens" in done.stderr
    told = done.stderr.decode()
    assert "settings.toml cannot be read: Not a directory; defaults are used" in told
    assert "what the table learned cannot be kept" in told
    assert "Traceback" not in told


def test_without_a_home_the_default_model_says_where_it_would_be_kept(run, tmp_path):
    home = tmp_path / "home"
    home.touch()
    done = run("chat", "--plain", HOME=str(home), MLXSPEC_HOME=None, XDG_CACHE_HOME=None)
    assert done.returncode == 1
    last = done.stderr.decode().splitlines()[-1]
    assert "the default model cannot be stored" in last
    assert "set MLXSPEC_HOME to another folder" in last


def test_on_a_full_disk_the_app_answers_and_says_what_it_cannot_keep(tmp_path):
    (tmp_path / "settings.toml").write_text("frame_rate = 30\n")
    limited = ("-c", LIMITED, "0", SLOW_CHAT, str(tmp_path), "inf")
    with chat_at_terminal(*limited) as terminal:
        noticed = b"this chat is not saved"  # for seconds, which may be over by now
        terminal.wait_until(lambda: noticed in terminal.written, "it does not say so")
        terminal.press("hello\r")
        terminal.wait_for("tokens/s")
        terminal.press("/theme\r")
        terminal.wait_for("cannot be written")
    assert b"assistant> Speculative decoding" in terminal.written
    assert (tmp_path / "settings.toml").read_text() == "frame_rate = 30\n"


def test_a_disk_that_fills_during_a_chat_keeps_what_was_written_before(tmp_path):
    """The files may grow to what the store has at first and a message or two more."""
    limited = ("-c", LIMITED, "200000", SLOW_CHAT, str(tmp_path), "inf")
    with chat_at_terminal(*limited) as terminal:
        terminal.wait_for("Message")
        for said in ("first", "second", "third", "fourth"):
            terminal.press(f"{said} " + "word " * 100)
            terminal.wait_for(said)
            terminal.press("\r")
            terminal.wait_for("Message")
    assert b"could not be written to the chat store: they are lost" in terminal.written
    assert b"you> fourth" in terminal.written
    with closing(sqlite3.connect(tmp_path / "chats.sqlite3")) as chats:
        assert chats.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert chats.execute("SELECT text FROM message").fetchone()[0].startswith("first")


def test_the_home_of_nobody_is_a_name_as_any_other(run):
    for place in ("--model", "--drafter"):
        done = run("chat", "--plain", place, "~nobody-of-that-name/x", said=b"hi\n")
        assert done.returncode == 1
        assert b"'~nobody-of-that-name/x'" in done.stderr
        assert b"Traceback" not in done.stderr


# ---- terminals and clocks -----------------------------------------------------------------------


def test_a_terminal_of_twenty_columns_and_five_rows_holds_a_chat(tmp_path):
    with chat_at_terminal(SLOW_CHAT, str(tmp_path), "inf", columns=20, rows=5) as terminal:
        terminal.wait_until(lambda: b"keys" in terminal.written, "it does not say what it needs")
        terminal.wait_for("Message")
        terminal.press("hello\r")
        terminal.wait_for("tokens/s")
    assert b"assistant>\r\nSpeculative decoding" in terminal.written


def test_a_clock_that_jumps_leaves_the_figures_sane(monkeypatch):
    days = iter(range(10_000))
    monkeypatch.setattr("time.time", lambda: 1e9 + (-1) ** next(days) * 86_400 * 3)
    chat = Conversation(prepare_loaded(toy_target(), Options("suffix")).engine)
    events = list(chat.reply("abc", GenerationParams(max_tokens=12)))
    stamps = [event.ts for event in events if hasattr(event, "ts")]
    assert stamps == sorted(stamps)
    assert stamps[-1] < 60
    assert 0 < events[-1].stats["generation_tps"] < 1e6
