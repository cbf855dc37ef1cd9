"""What is printed of a reply: no escape sequences on a terminal, all of it in a file or JSON."""

import json
import re
import sys

import pytest

from mlxspec.drafting.auto import Choice
from mlxspec.params import GenerationParams
from mlxspec.trace.events import EmittedToken, GenerationFinished, GenerationStarted, PlainDecoded
from mlxspec_app.sessions.session import ReplySettings
from mlxspec_cli.commands.generate import _Printer
from mlxspec_cli.main import main
from mlxspec_cli.plain_chat import _PlainChat
from tests.support.gguf_files import Q5_K, Stored, gguf_bytes, tiny_config, tiny_metadata

PIECES = (
    *("a\x1b", "]52;c;cm0gLXJm\x07b"),  # puts a command into the clipboard
    *("\x1b[2J", "\x9b31m", "\x1b]0;title\x1b\\", "\x1bP+q\x90", "\r", "\x08\x7f"),
    *("\u202e", "\u2066", "\u200f", "c\td\n"),
)
_CONTROLS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")

CHOICE = Choice("none", "as requested", {})


def reply():
    yield GenerationStarted("m", "none")
    for number, piece in enumerate(PIECES[:-1], 1):
        yield PlainDecoded(number, 0.1, (EmittedToken(number, piece, "plain"),), 1.0, number)
    yield GenerationFinished(1.0, "stop", PIECES[-1], {})


class Harmful:
    """A conversation with a model that means harm."""

    def reply(self, text, params, should_stop):
        return reply()


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_plain_chat_prints_nothing_that_a_terminal_obeys(monkeypatch, capsys, is_terminal):
    monkeypatch.setattr("mlxspec_cli.output.summary_line", lambda *_, **__: "")
    monkeypatch.setattr("builtins.input", lambda *_: "hello")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    monkeypatch.setenv("COLUMNS", "200")
    assert _PlainChat(Harmful(), ReplySettings(GenerationParams(), ())).turn()
    printed = capsys.readouterr().out
    if not is_terminal:
        assert printed == "".join(PIECES) + "\n"
        return
    assert not _CONTROLS.search(printed)
    assert printed.startswith("a\u241b]52;c;cm0gLXJm\u2407b")
    assert printed.endswith("c\td\n\n")


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_terminal_gets_a_harmless_text_and_a_file_the_very_text(
    monkeypatch, capsys, is_terminal, as_json
):
    monkeypatch.setattr("mlxspec_cli.output.summary_line", lambda *_, **__: "")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    printer = _Printer(CHOICE, as_json=as_json)
    for event in reply():
        printer.show(event)
    printed = capsys.readouterr().out
    if is_terminal:
        assert not _CONTROLS.search(printed)
    elif not as_json:
        assert printed == "".join(PIECES) + "\n"


def test_json_has_a_text_with_reasoning_whole_and_split(capsys):
    pieces = (("<think>", "mark"), ("hm", "reasoning"), ("</think>", "mark"), ("yes", "answer"))
    printer = _Printer(CHOICE, as_json=True)
    printer.show(GenerationStarted("m", "none"))
    for number, (text, channel) in enumerate(pieces, 1):
        token = EmittedToken(number, text, "plain", 0.5, None, channel)
        printer.show(PlainDecoded(number, 0.1, (token,), 1.0, number))
    printer.show(GenerationFinished(1.0, "stop", "!"))
    found = json.loads(capsys.readouterr().out)
    assert found["text"] == "<think>hm</think>yes!"
    assert (found["reasoning"], found["answer"]) == ("hm", "yes!")
    assert found["tokens"] == [1, 2, 3, 4]


def test_an_error_that_quotes_a_file_is_harmless(tmp_path, capsys):
    tensors = {"\x1b]52;c;cm0gLXJm\x07": Stored((32,), Q5_K, b"")}
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(tiny_metadata(tiny_config()), tensors))
    assert main(["generate", "--model", str(path), "--prompt", "a"]) == 1
    said = capsys.readouterr().err
    assert "holds \u241b]52" in said
    assert not _CONTROLS.search(said)
