"""The app on a real terminal: it draws, resizes, stops and leaves the terminal as it was."""

import os
import signal
import sys
from types import SimpleNamespace

import pytest
from textual.drivers.linux_driver import LinuxDriver
from textual.drivers.linux_inline_driver import LinuxInlineDriver

from mlxspec.trace.events import GenerationFinished
from mlxspec.trace.file import TraceWriter, read_trace
from mlxspec_app.app import mend_typed_bytes
from tests.support.paths import TESTS
from tests.support.pty_terminal import Terminal
from tests.support.store_files import open_reader
from tests.traces import make_fake

SLOW_CHAT = str(TESTS / "support/slow_chat.py")
ALTERNATE_SCREEN = b"\x1b[?1049h"
ENTER, CTRL_C, CTRL_G, CTRL_Q, CTRL_Z = "\r", "\x03", "\x07", "\x11", "\x1a"
ESCAPE, F2 = "\x1b", "\x1bOQ"


@pytest.fixture
def start():
    """Start programs on a terminal; those that still run are ended."""
    started = []

    def start_one(*argv, **options):
        terminal = Terminal([sys.executable, *argv], **options)
        started.append(terminal)
        return terminal

    yield start_one
    for terminal in started:
        terminal.close()


@pytest.fixture
def recording(tmp_path):
    path = tmp_path / "chat.jsonl"
    with TraceWriter(path) as trace:
        for event in make_fake.chat():
            trace.write(event)
    return str(path)


def last_chat(folder):
    with open_reader(folder / "chats.sqlite3") as reader:
        (chat,) = reader.recent()
        return reader.path(chat.chat)


@pytest.mark.parametrize("key", [CTRL_C, CTRL_Q])
def test_the_terminal_is_left_as_it_was_found(start, recording, key):
    terminal = start("-m", "mlxspec", "replay", recording, "--speed", "50")
    terminal.wait_for("mlxspec")
    terminal.wait_for("Speculative decoding")
    terminal.press(key)
    assert terminal.wait_for_end() == 0
    assert terminal.modes_left_on == set()
    assert terminal.is_as_before


def test_a_new_size_is_drawn_in_full(start, tmp_path):
    terminal = start(SLOW_CHAT, str(tmp_path), "inf", columns=100, rows=30)
    terminal.wait_for("Message")
    for columns, rows in ((60, 20), (140, 45)):
        terminal.resize(columns, rows)
        frame = "╭" + "─" * (columns - 2) + "╮"
        terminal.wait_until(lambda frame=frame: frame in terminal.shown, "the prompt did not grow")
    terminal.press(CTRL_C + CTRL_C)
    assert terminal.wait_for_end() == 0


def test_the_default_model_answers_at_the_first_run(start, tmp_path):
    """The pictures of the chat stay beside its recording, to be looked at."""
    trace = tmp_path / "chat.jsonl"
    terminal = start(
        *("-m", "mlxspec", "chat", "--data-dir", str(tmp_path), "--trace", str(trace)),
        *("--drafter", "pool", "--temp", "0", "--max-tokens", "24"),
    )

    def keep_picture(name):
        (tmp_path / f"{name}.svg").write_text(terminal.picture(name), encoding="utf-8")

    terminal.wait_for("model alone")
    keep_picture("first-run")
    terminal.press(ESCAPE)
    terminal.wait_until(lambda: "model alone" not in terminal.shown, "the first run did not end")
    terminal.press("What is the capital of France?" + ENTER)
    terminal.wait_for("The capital of France is Paris.")
    terminal.wait_for("tokens/s")
    keep_picture("calm")
    terminal.press(F2)
    terminal.wait_for("X-ray:")
    keep_picture("xray")
    terminal.press(CTRL_Q)
    assert terminal.wait_for_end() == 0
    assert terminal.is_as_before
    (end,) = [event for event in read_trace(trace) if isinstance(event, GenerationFinished)]
    assert end.reason == "stop"


def test_a_chat_that_is_killed_leaves_what_was_said_in_the_store(start, tmp_path):
    terminal = start(SLOW_CHAT, str(tmp_path), "1")
    terminal.wait_for("Message")
    terminal.press("hello" + ENTER)
    terminal.wait_for("Speculative decoding lets")
    terminal.wait_until(
        lambda: "decoding lets" in last_chat(tmp_path)[-1].text, "the store did not follow"
    )
    os.kill(terminal.pid, signal.SIGKILL)
    assert terminal.wait_for_end() == -signal.SIGKILL
    turn, reply = last_chat(tmp_path)
    assert (turn.role, turn.text) == ("user", "hello")
    assert (reply.role, reply.state) == ("assistant", "partial")


@pytest.mark.parametrize("place", ["", "inline"])
def test_what_was_said_stays_in_the_scrollback(start, tmp_path, place):
    terminal = start(SLOW_CHAT, str(tmp_path), "inf", place)
    terminal.wait_for("Message")
    terminal.press("hello" + ENTER)
    terminal.wait_for("tokens/s")
    terminal.press(CTRL_C + CTRL_C)
    assert terminal.wait_for_end() == 0
    assert terminal.modes_left_on == set()
    assert terminal.is_as_before
    assert (ALTERNATE_SCREEN in terminal.written) == (not place)
    *_, last = terminal.written.split(b"\x1b[")  # plain text, once the app has gone
    assert b"you> hello\r\n\r\nassistant> Speculative decoding" in last


def test_ctrl_z_stops_the_app_and_the_shell_brings_it_back(start, tmp_path):
    shell = "import pty; pty.spawn(['bash', '--norc', '--noprofile', '-i'])"
    terminal = start("-c", shell, env={"PS1": "shell$ "})
    terminal.wait_for("shell$")
    terminal.press(f"{sys.executable} {SLOW_CHAT} {tmp_path} inf" + ENTER)
    terminal.wait_for("Message")
    terminal.press("half")
    terminal.wait_for("half")
    terminal.press(CTRL_Z)
    terminal.wait_for("Stopped")
    assert terminal.written.count(ALTERNATE_SCREEN) == 1
    terminal.press("fg" + ENTER)
    terminal.wait_until(lambda: terminal.written.count(ALTERNATE_SCREEN) == 2, "fg did nothing")
    terminal.wait_until(
        lambda: all(
            text in terminal.written.rpartition(ALTERNATE_SCREEN)[2]
            for text in (b"the X-ray", b"half", b"Help")  # every row, not what changed alone
        ),
        "the app did not come back",
    )
    terminal.press("!" + CTRL_Q)
    terminal.wait_until(
        lambda: terminal.written.rstrip().endswith(b"shell$"), "the app did not end"
    )
    assert (tmp_path / "unsent.txt").read_text() == "half!"


def test_the_editor_has_the_terminal_and_the_app_draws_all_of_it_again(start, tmp_path):
    program = "import sys; print('the editor'); open(sys.argv[1], 'a').write('!')"
    editor = f'{sys.executable} -c "{program}"'
    terminal = start(SLOW_CHAT, str(tmp_path), "inf", env={"VISUAL": editor})
    terminal.wait_for("Message")
    terminal.press("half" + CTRL_G)
    terminal.wait_until(lambda: b"half!" in terminal.written, "the text did not come back")
    left, *_ = terminal.written.rpartition(ALTERNATE_SCREEN)
    assert b"the editor" in left
    terminal.wait_until(
        lambda: b"the X-ray" in terminal.written.rpartition(ALTERNATE_SCREEN)[2], "rows are missing"
    )
    terminal.press(CTRL_Q)
    assert terminal.wait_for_end() == 0
    assert terminal.is_as_before


@pytest.mark.parametrize("driver", [LinuxDriver, LinuxInlineDriver])
def test_typed_bytes_that_are_not_utf_8_reach_the_app_as_one_sign_each(driver, monkeypatch):
    """If Textual decodes elsewhere one day, this says so."""
    mend_typed_bytes()
    typed = []
    monkeypatch.setattr(driver, "process_message", lambda self, event: typed.append(event))
    left = [b"a\xffb", b"\xc3", b"\xa9", b"\x1b[200~x\xed\xa0\xbdy", b"z\x1b[201~"]
    source, terminal = os.pipe()

    def has_typed_all():
        return not (left and os.write(terminal, left.pop(0)))

    reader = object.__new__(driver)  # a driver that is made takes the terminal of the tests
    reader.fileno, reader._debug = source, False
    reader.exit_event = SimpleNamespace(is_set=has_typed_all)
    reader.run_input_thread()
    os.close(source)
    os.close(terminal)
    *keys, paste = typed
    assert [key.character for key in keys] == ["a", "\ufffd", "b", "é"]
    assert paste.text == "x\ufffd\ufffd\ufffdyz"


@pytest.mark.parametrize("place", ["", "inline"])
def test_a_byte_that_is_not_utf_8_ends_no_chat_and_costs_no_text(start, tmp_path, place):
    terminal = start(SLOW_CHAT, str(tmp_path), "inf", place)
    terminal.wait_for("Message")
    terminal.press("half ")
    terminal.press(b"caf\xe9")
    terminal.press(" done")
    terminal.wait_for("half caf\ufffd done")
    terminal.press(CTRL_Q)
    assert terminal.wait_for_end() == 0
    assert (tmp_path / "unsent.txt").read_text() == "half caf\ufffd done"
