"""A prompt for a server: ours tells all of the reply, others what they do; refusals are said."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest

from mlxspec.errors import ServerError
from mlxspec.trace.events import DraftVerified, GenerationFinished, text_of
from mlxspec_app.playback.compare import compare
from mlxspec_app.sessions.servers.address import ServerAddress
from mlxspec_app.sessions.servers.asked import ask
from mlxspec_app.sessions.servers.items import EventsLost, ReplyEvent, StreamBegun
from mlxspec_app.sessions.servers.raced import run_twice
from mlxspec_cli.commands.watch import plain_lines
from mlxspec_cli.main import main
from tests.support.http_servers import running
from tests.support.served import MESSAGES, listening, true_text


def chunk(text, finish=None, **more):
    choice = {"delta": {"content": text}, "finish_reason": finish}
    return {"id": "chatcmpl-abc", "model": "small", "choices": [choice], **more}


@contextmanager
def chatting(*lines, status=200, kind="text/event-stream"):
    """A server without a feed that answers every prompt alike: its address, and what it got."""
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


def data(*chunks):
    return [f"data: {json.dumps(one)}\n\n" for one in chunks]


def test_another_server_is_watched_by_its_chunks():
    timings = {"predicted_n": 2, "draft_n": 1, "draft_n_accepted": 1}
    lines = data(chunk("Hel", timings=timings), chunk("lo", timings=timings), chunk("", "stop"))
    with chatting(": ping\n\n", *lines, "data: nonsense\n\n", "data: [DONE]\n\n") as (server, sent):
        items = list(ask(server, "Hi", "big"))
    assert items[0] == StreamBegun()
    assert EventsLost(1) in items
    events = [item.event for item in items if isinstance(item, ReplyEvent)]
    assert "".join(map(text_of, events)) == "Hello"
    assert any(isinstance(event, DraftVerified) for event in events)
    assert isinstance(events[-1], GenerationFinished)
    assert {item.reply for item in items if isinstance(item, ReplyEvent)} == {"abc"}
    assert sent[0]["messages"] == [{"role": "user", "content": "Hi"}]
    assert (sent[0]["model"], sent[0]["stream"], sent[0]["timings_per_token"]) == (
        "big",
        True,
        True,
    )


def test_the_model_is_left_to_the_server_where_none_is_named():
    with chatting(*data(chunk("Hi", "stop"))) as (server, sent):
        list(ask(server, "Hi"))
    assert "model" not in sent[0]


def test_without_a_terminal_the_server_is_quoted():
    last = {"usage": {"completion_tokens": 3}}
    with chatting(*data(chunk("Hello"), chunk("", "stop"), last)) as (server, _):
        lines = list(plain_lines(ask(server, "Hi")))
    assert lines[:2] == ["abc · small", "Hello"]
    assert lines[2].startswith("[3 tokens · ")
    assert lines[2].endswith("the server tells nothing of drafts]")


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
        ask(server, "Hi")


def test_ours_tells_every_event_of_the_reply():
    with listening() as (port, _):
        seen = []
        for item in ask(ServerAddress(f"127.0.0.1:{port}"), MESSAGES[0]["content"]):
            if isinstance(item, ReplyEvent):
                seen.append(item.event)
                if isinstance(item.event, GenerationFinished):
                    break
    assert seen[0].t == "meta"
    assert seen[0].drafter == "pool"
    assert "".join(map(text_of, seen)) == true_text(MESSAGES)


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


def test_another_server_tells_too_little_for_a_race():
    with (
        chatting() as (server, sent),
        pytest.raises(ServerError, match="a race needs `mlxspec serve`"),
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
