"""A prompt for a server: its reply, a race of two replies, and refusals."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from itertools import islice

import pytest

from mlxspec.errors import ServerError
from mlxspec.trace.events import text_of
from mlxspec_app.playback.compare import compare
from mlxspec_app.sessions.servers import ServerAddress, ask_chat, run_twice
from mlxspec_cli.commands import watch
from mlxspec_cli.commands.watch import plain_lines
from mlxspec_cli.main import main
from mlxspec_cli.output import for_output
from tests.support.http_servers import running
from tests.support.served import MESSAGES, listening, true_text


@contextmanager
def chatting(*lines, status=200, kind="text/event-stream"):
    """A server without a feed that answers every prompt alike: its address, and its prompts."""
    sent = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(404)

        def do_POST(self):
            sent.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write("".join(lines).encode())

        def log_message(self, *words):
            pass

    with running(Handler) as port:
        yield ServerAddress(f"127.0.0.1:{port}"), sent


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"error": {"message": "no such model"}}', "refuses the prompt: no such model; where it"),
        ('{"error": "no model"}', "refuses the prompt: no model; where it wants a model, name one"),
        ('{"detail": "what?"}', "refuses the prompt: what\\?"),
        ("<html>", "refuses the prompt: status 400"),
    ],
)
def test_a_refusal_is_said_in_the_words_of_the_server(body, said):
    with (
        chatting(body, status=400, kind="application/json") as (server, _),
        pytest.raises(ServerError, match=said),
    ):
        ask_chat(server, "Hi")


def test_a_reply_that_was_asked_for_is_printed_when_it_is_over(monkeypatch, capsys):
    monkeypatch.setattr(watch, "plain_lines", lambda items: islice(plain_lines(items), 3))
    with listening() as (port, _):
        assert main(["watch", f"127.0.0.1:{port}", "--ask", MESSAGES[0]["content"], "--plain"]) == 0
    name, text = capsys.readouterr().out.split("\n", 1)
    assert name.endswith(" · tiny")
    assert text.startswith(for_output(true_text(MESSAGES)))


# ---- races ----------------------------------------------------------------------------------


def test_a_race_is_the_same_reply_with_drafts_and_plain():
    said = []
    with listening() as (port, _):
        server = ServerAddress(f"127.0.0.1:{port}")
        plain, drafted = run_twice(server, MESSAGES[0]["content"], say=said.append)
    assert said == ["run 1 of 2, with drafts", "run 2 of 2, plain"]
    for run in (plain, drafted):
        assert [event.t for event in run[:2]] == ["turn", "meta"]
        assert "".join(map(text_of, run)) == true_text(MESSAGES)
    assert not any(event.t == "draft" for event in plain)
    assert any(event.t == "draft" for event in drafted)
    verdict = compare(plain, drafted)
    assert verdict.kind == "identical", verdict


def test_another_server_is_not_asked_for_a_race():
    with (
        chatting() as (server, sent),
        pytest.raises(ServerError, match="only `mlxspec serve` streams the events"),
    ):
        run_twice(server, "Hi")
    assert not sent


def test_a_race_for_no_model_is_refused_by_the_server():
    with (
        listening() as (port, _),
        pytest.raises(ServerError, match="there is no model of the name 'nope'"),
    ):
        run_twice(ServerAddress(f"127.0.0.1:{port}"), "Hi", "nope", lambda words: None)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--ask", " "], "--ask wants a prompt; got an empty text"),
        (["--race", ""], "--race wants a prompt; got an empty text"),
        (["--ask", "a", "--race", "b"], "--ask shows one reply and --race two"),
        (["--model", "a"], "--model names the model for a prompt"),
    ],
)
def test_prompts_that_cannot_be_one_are_refused(capsys, flags, said):
    assert main(["watch", *flags]) == 2
    assert said in capsys.readouterr().err
