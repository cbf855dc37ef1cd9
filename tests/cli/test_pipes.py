"""Prompts as words and through pipes: the reply alone on standard output, and exit codes."""

import io
import json
import os
import re
import signal
import sys

import pytest

from mlxspec.budget import FixedBudget
from mlxspec.errors import MlxspecError
from mlxspec.loading import exactness
from mlxspec.params import GenerationParams
from mlxspec.trace.events import (
    EmittedToken,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
)
from mlxspec_app.sessions.session import ReplySettings
from mlxspec_cli import plain_chat
from mlxspec_cli.commands.generate import _read_prompt
from mlxspec_cli.main import main
from mlxspec_cli.parser import build_parser
from mlxspec_server import run
from tests.support.chat_folders import save_chat_folder

FLAGS = ("--drafter", "none", "--max-tokens", "4")


class Typed(io.StringIO):
    """Standard input at a terminal."""

    def isatty(self):
        return True


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(save_chat_folder(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture(autouse=True)
def _own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path))


def prompt_of(monkeypatch, stdin, *arguments):
    monkeypatch.setattr(sys, "stdin", stdin)
    return _read_prompt(build_parser().parse_args(["generate", *arguments]))


@pytest.mark.parametrize(
    ("stdin", "arguments", "prompt"),
    [
        (Typed("no"), ("say", "hello"), "say hello"),
        (Typed("typed\n"), ("-",), "typed\n"),
        (io.StringIO("piped\n"), (), "piped\n"),
        (io.StringIO("piped\n"), ("-",), "piped\n"),
        (io.StringIO("piped\n"), ("--prompt-file", "-"), "piped\n"),
        (io.StringIO("a text\n"), ("sum", "it", "up"), "a text\n\nsum it up"),
        (io.StringIO(""), ("hello",), "hello"),
        (io.StringIO("not read"), ("--prompt", "hello"), "hello"),
    ],
)
def test_a_prompt_is_words_or_piped_or_both(monkeypatch, stdin, arguments, prompt):
    assert prompt_of(monkeypatch, stdin, *arguments) == prompt


@pytest.mark.parametrize(
    ("stdin", "arguments", "why"),
    [
        (Typed(""), (), "give a prompt: mlxspec generate WORDS"),
        (io.StringIO(" \n"), (), "the prompt is empty"),
        (Typed(""), ("a", "--prompt", "b"), "give one prompt"),
    ],
)
def test_a_prompt_that_is_missing_or_given_twice_is_an_error(
    monkeypatch, capsys, stdin, arguments, why
):
    monkeypatch.setattr(sys, "stdin", stdin)
    assert main(["generate", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert why in err


def test_a_chat_in_a_pipe_writes_its_replies_and_nothing_else(monkeypatch, capsys, model):
    monkeypatch.setattr(sys, "stdin", io.StringIO("hi"))
    assert main(["generate", "--model", model, *FLAGS]) == 0
    reply = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.StringIO("/help\n/nothing\n/temp\nhi\n/new\nhi\n"))
    assert main(["chat", "--model", model, "--temp", "0", *FLAGS]) == 0
    out, err = capsys.readouterr()
    assert out == reply * 2
    for words in (
        "/help for help",
        "Ctrl-D ends the chat",
        "/nothing is not a command",
        "temp is 0",
    ):
        assert words in err
    assert "you>" not in out + err


def test_a_person_is_asked_for_a_line_but_not_in_the_output_of_a_pipe(monkeypatch, capsys, model):
    monkeypatch.setattr(sys, "stdin", Typed("/quit\n"))
    assert main(["chat", "--plain", "--model", model, *FLAGS]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("\nyou> ")


def test_a_reply_that_failed_is_the_exit_code_of_a_pipe(monkeypatch, capsys, model):
    def fail(*args, **more):
        raise MlxspecError("no room")

    monkeypatch.setattr(plain_chat.Conversation, "reply", fail)
    for stdin, code in ((io.StringIO("hi\n"), 1), (Typed("hi\n"), 0)):
        monkeypatch.setattr(sys, "stdin", stdin)
        assert main(["chat", "--plain", "--model", model, *FLAGS]) == code
        assert "mlxspec: no room" in capsys.readouterr().err


def test_ctrl_c_ends_a_pipe_with_130_and_only_the_reply_of_a_person(monkeypatch, capsys, model):
    replies = []
    reply = plain_chat.Conversation.reply

    def interrupted(self, *args, **more):
        replies.append(args)
        os.kill(os.getpid(), signal.SIGINT)
        return reply(self, *args, **more)

    monkeypatch.setattr(plain_chat.Conversation, "reply", interrupted)
    for stdin, code, count in ((io.StringIO("a\nb\n"), 130, 1), (Typed("a\nb\n"), 0, 2)):
        replies.clear()
        monkeypatch.setattr(sys, "stdin", stdin)
        assert main(["chat", "--plain", "--model", model, *FLAGS]) == code
        assert len(replies) == count


def test_on_a_terminal_a_reply_breaks_between_words(monkeypatch, capsys):
    class Talker:
        def reply(self, text, params, should_stop):
            yield GenerationStarted("m", "none")
            for number, piece in enumerate(("one t", "wo one", " tw")):
                yield PlainDecoded(number, 0.1, (EmittedToken(number, piece, "plain"),), 1.0, 1)
            yield GenerationFinished(1.0, "stop", "o", {})

    monkeypatch.setattr("mlxspec_cli.output.summary_line", lambda *_, **__: "")
    monkeypatch.setattr("builtins.input", lambda *_: "hi")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "9")
    assert plain_chat._PlainChat(Talker(), ReplySettings(GenerationParams(), ())).turn()
    assert capsys.readouterr().out == "one two\none two\n"


def test_a_prediction_is_read_from_a_file(model, tmp_path, capsys, monkeypatch):
    # By its times a model as small as this one might draft nothing after a first miss.
    monkeypatch.setattr("mlxspec.drafting.engines.budget_for", lambda loaded, cache: FixedBudget())

    def said(*more):
        words = ["generate", "--model", model, "--prompt", "hello", "--drafter", "none", "--json"]
        assert main([*words, "--max-tokens", "24", "--temp", "0", *more]) == 0
        return json.loads(capsys.readouterr().out)

    plain = said()
    path = tmp_path / "expected.txt"
    path.write_text(plain["text"])
    predicted = said("--prediction", str(path))
    assert predicted["tokens"] == plain["tokens"]
    assert predicted["stats"]["target_forwards"] < plain["stats"]["target_forwards"] == 24
    assert predicted["stats"]["accepted_prediction_tokens"] > 0


@pytest.mark.parametrize("way", [(), ("--raw",)])
def test_an_exact_reply_has_one_hash_and_the_examination_is_told_once(
    model, capsys, monkeypatch, way
):
    monkeypatch.setattr(exactness, "_known", {})
    hashes = set[str]()
    for drafter, is_first in (("none", True), ("suffix", False)):
        words = ["generate", "--model", model, "--prompt", "ho ho", "--drafter", drafter, *way]
        assert main([*words, "--json", "--exact", "--max-tokens", "24"]) == 0
        out, err = capsys.readouterr()
        stats = json.loads(out)["stats"]
        assert stats["exact"]
        hashes.add(stats["token_hash"])
        assert ("finding the forwards" in err) == is_first
    assert len(hashes) == 1


@pytest.mark.parametrize("is_exact", [True, False])
def test_a_server_that_is_exact_examines_before_it_answers(model, capsys, monkeypatch, is_exact):
    monkeypatch.setattr(exactness, "_known", {})
    served = []
    monkeypatch.setattr(run, "serve", lambda shelf, *_: served.append(capsys.readouterr().err))
    words = ["serve", model, "--drafter", "none", "--port", "0"]
    assert main([*words, *["--exact"] * is_exact]) == 0
    assert ["finding the forwards" in said for said in served] == [is_exact]


def test_a_reply_fits_what_its_flag_says(model, tmp_path, capsys):
    def said(*more):
        words = ["generate", "--model", model, "--prompt", "hello", "--drafter", "suffix"]
        assert main([*words, "--max-tokens", "40", *more]) == 0
        return capsys.readouterr().out

    schema, lark = tmp_path / "schema.json", tmp_path / "sum.lark"
    schema.write_text(
        '{"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"],'
        ' "additionalProperties": false}'
    )
    lark.write_text('start: "1" ("+" "1")? "!"')
    assert json.loads(said("--json-schema", str(schema)))["a"] in (1, 2)
    assert re.fullmatch("[0-9]{3}-[a-c]", said("--regex", "[0-9]{3}-[a-c]").strip())
    assert said("--grammar", str(lark)).strip() in ("1!", "1+1!")
    assert said("--choices", "yes,no").strip() in ("yes", "no")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--regex", "a", "--choices", "b"], "give only one of --json-schema, --regex"),
        (["--json-schema", "missing.json"], "cannot read the schema file"),
        (["--regex", "(a"], "the regular expression cannot be served"),
        (["--choices", "a,,b"], "none of them empty"),
    ],
)
def test_a_grammar_that_cannot_be_served_is_an_error_in_one_line(model, flags, message, capsys):
    words = ["generate", "--model", model, "--prompt", "hello", *FLAGS, *flags]
    assert main(words) == 2
    said = capsys.readouterr().err.strip()
    assert message in said
    assert said.count("\n") <= 1
