"""Missing places, full disks, closed streams: one sentence, no traceback, and the chat goes on.

Programs whose streams, interpreter or terminal is another run in a process of their own.
"""

import io
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
from mlxspec_cli.main import main
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

    def run_one(*argv, said=b"", streams="", stdout=subprocess.PIPE, **changed):
        settings = {"PYTHONPATH": os.pathsep.join(sys.path), "MLXSPEC_HOME": str(tmp_path)}
        settings = {**os.environ, **settings, **changed}
        return subprocess.run(
            ["sh", "-c", f'exec "$@" {streams}', "sh", sys.executable, "-m", "mlxspec", *argv],
            input=said,
            env={name: value for name, value in settings.items() if value is not None},
            stdout=stdout,
            stderr=subprocess.PIPE,
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
    assert done.stderr.count(b"none: 4 tokens") == 1  # the first line; of the second it is said
    assert b"mlxspec: the text is not UTF-8" in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Ctrl-D ends the chat" in done.stderr


@HAS_FULL
@pytest.mark.parametrize(("command", "is_unbuffered"), [("man", "1"), ("man", ""), ("--help", "")])
def test_an_output_that_takes_nothing_is_one_sentence(run, command, is_unbuffered):
    done = run(command, streams=">/dev/full", PYTHONUNBUFFERED=is_unbuffered)
    assert done.returncode == 1
    told = "the output cannot be written: No space left on device; make room, or write elsewhere"
    assert done.stderr.decode().splitlines() == [f"mlxspec: {told}"]


@pytest.mark.parametrize("is_unbuffered", ["", "1"])
def test_a_reader_that_goes_early_is_no_error(run, is_unbuffered):
    reader, writer = os.pipe()
    os.close(reader)
    done = run("--help", stdout=writer, PYTHONUNBUFFERED=is_unbuffered)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


# ---- interpreters ----------------------------------------------------------------------------


def test_a_chat_goes_on_without_asserts_and_with_warnings_as_errors(run, model):
    arguments = plain(model, "--temp", "0", "--drafter", "pool")
    strict = {"PYTHONOPTIMIZE": "1", "PYTHONWARNINGS": "error"}
    done = run(*arguments, said=b"hi\n/verify\n/retry\n", **strict)
    assert done.returncode == 0, done.stderr
    assert b"identical to plain decoding: 4 of 4 tokens" in done.stderr
    assert done.stderr.count(b"pool: 4 tokens") == 2


# ---- places -------------------------------------------------------------------------------------


@pytest.fixture
def no_home(tmp_path, monkeypatch):
    """A home that is a file, and no variable that names another place; nobody types anything."""
    (tmp_path / "home").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("MLXSPEC_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO("hi\n"))


def test_a_home_that_is_a_file_costs_what_would_be_kept_there(no_home, model, capsys):
    assert main(plain(model, "--temp", "0", "--drafter", "pool")) == 0
    told = capsys.readouterr().err
    assert "4 tokens" in told
    assert "settings.toml cannot be read: Not a directory; defaults are used" in told
    assert "what the table learned cannot be kept" in told


def test_without_a_home_the_default_model_says_where_it_would_be_kept(no_home, capsys):
    assert main(["chat", "--plain"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert "the default model cannot be stored" in last
    assert "set MLXSPEC_HOME to another folder" in last


@pytest.mark.parametrize("place", ["--model", "--drafter"])
def test_the_home_of_nobody_is_a_name_as_any_other(place, model, capsys):
    assert main(["chat", "--plain", "--model", model, place, "~nobody-of-that-name/x"]) == 1
    assert "'~nobody-of-that-name/x'" in capsys.readouterr().err


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
