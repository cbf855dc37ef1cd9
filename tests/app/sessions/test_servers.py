"""Servers as the app asks them: a feed of replies, prompts, races, and refusals in words."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from itertools import islice

import pytest

from mlxspec.errors import ServerError
from mlxspec.trace.events import GenerationFailed, TurnStarted, text_of
from mlxspec_app.playback.compare import compare
from mlxspec_app.sessions.servers import (
    EventsLost,
    ReplyEvent,
    ServerAddress,
    ServerFeed,
    StreamBegun,
    StreamBroken,
    ask_chat,
    run_twice,
)
from mlxspec_app.sessions.watching import WatchSession
from mlxspec_cli.commands import watch
from mlxspec_cli.commands.watch import plain_lines
from mlxspec_cli.main import main
from mlxspec_cli.output import for_output
from tests.support.http_servers import running
from tests.support.served import MESSAGES, listening, true_text
from tests.traces import make_fake

EVENTS = [event for event in make_fake.tree() if not isinstance(event, TurnStarted)]


def told(name, events=EVENTS):
    return [ReplyEvent("tiny", name, event) for event in events]


def seen(items):
    """A session that has taken some items."""
    session = WatchSession(items)
    session._read()
    session.drain()
    return session


@contextmanager
def answering(status, kind, body="{}"):
    """A server that answers everything in one way: its address, and the prompts it got."""
    sent = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body.encode())

        def do_POST(self):
            sent.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.do_GET()

        def log_message(self, *words):
            pass

    with running(Handler) as port:
        yield f"127.0.0.1:{port}", sent


# ---- the feed -------------------------------------------------------------------------------


def test_what_a_server_publishes_arrives_event_for_event():
    with listening() as (port, server):
        items = ServerFeed(ServerAddress(f"localhost:{port}/v1/")).items()
        assert next(items) == StreamBegun()
        while not server.feed._watchers:
            pass
        for event in EVENTS:
            server.feed.publish("tiny", "a", event)
        assert list(islice(items, len(EVENTS))) == told("a")
        items.close()


def test_a_key_goes_with_it_and_a_wrong_one_is_said():
    with listening(api_key="secret") as (port, _):
        address = f"http://127.0.0.1:{port}"
        ServerFeed(ServerAddress(address, "secret")).open()
        with pytest.raises(ServerError, match=r"needs its key: add it with --api-key KEY"):
            ServerFeed(ServerAddress(address)).open()
        with pytest.raises(ServerError, match=r"refuses this key: give its own with --api-key"):
            ServerFeed(ServerAddress(address, "wrong")).open()


@pytest.mark.parametrize(
    ("status", "kind", "got"),
    [(404, "application/json", "status 404"), (200, "text/html", "text/html")],
)
def test_another_server_is_said_to_be_one(status, kind, got):
    with (
        answering(status, kind) as (address, _),
        pytest.raises(ServerError, match=rf"gave {got}, not .* only `mlxspec serve`"),
    ):
        ServerFeed(ServerAddress(address)).open()


def test_where_no_server_is_the_message_says_how_to_start_one():
    with answering(200, "text/html") as (address, _):
        pass
    with pytest.raises(ServerError, match=r"no server answers at http://127.*`mlxspec serve`"):
        ServerFeed(ServerAddress(address)).open()


@pytest.mark.parametrize("address", ["ftp://a", "http://", "a:b", "http://a b", ""])
def test_an_address_that_cannot_be_one_is_refused(address):
    with pytest.raises(ValueError, match="an address is one such as http"):
        ServerAddress(address)
    with pytest.raises(ValueError, match="an API key has letters"):
        ServerAddress("a", "schlüssel")


def test_a_stream_that_ends_is_asked_for_again_and_what_is_no_event_is_lost():
    body = ': hello\n\nevent: reply\ndata: {"model": 1}\n\nevent: lost\ndata: {"num_lost": 3}\n\n'
    waits = []
    with answering(200, "text/event-stream", body) as (address, _):
        items = ServerFeed(ServerAddress(address), waits.append).items()
        once = [StreamBegun(), EventsLost(1), EventsLost(3)]
        assert list(islice(items, 4)) == [*once, StreamBroken("the server ended the stream")]
        assert waits == []
        assert list(islice(items, 3)) == once
    assert waits == [2.0]


# ---- the session ----------------------------------------------------------------------------


def test_each_reply_is_folded_by_itself():
    mixed = [item for pair in zip(told("a"), told("b"), strict=True) for item in pair]
    session = seen(mixed)
    text = "".join(map(text_of, EVENTS[: len(session.replies["a"].events)]))
    assert [reply.state().reply.text for reply in session.replies.values()] == [text, text]
    assert session.shown.name == "a"
    assert session.running == []
    session.move(1)
    assert session.shown.name == "b"
    assert [state.reply.text for state in session.drain()] == [text]


def test_the_next_reply_is_shown_when_the_one_before_is_over():
    session = seen([*told("a"), *told("b", EVENTS[:5]), *told("c", EVENTS[:5])])
    assert session.shown.name == "b"
    assert [reply.name for reply in session.running] == ["b", "c"]


def test_a_stream_that_breaks_off_ends_the_replies_until_they_are_seen_again():
    late = [EVENTS[0], *(event for event in EVENTS if getattr(event, "r", 0) > 3)]
    session = seen([*told("a", EVENTS[:5]), StreamBroken("gone")])
    assert session.trouble == "gone"
    assert isinstance(session.shown.events[-1], GenerationFailed)
    session = seen([*told("a", EVENTS[:5]), StreamBroken("gone"), StreamBegun(), *told("a", late)])
    assert session.trouble == ""
    assert session.shown.is_part
    assert not session.shown.is_failed


def test_lost_events_are_counted():
    assert seen([EventsLost(3), EventsLost(4)]).num_lost == 7


# ---- plain lines ----------------------------------------------------------------------------


def test_without_a_terminal_each_reply_is_printed_when_it_is_over(capsys):
    lines = list(plain_lines([*told("a"), *told("b", EVENTS[:5]), StreamBroken("gone")]))
    end = next(n for n, event in enumerate(EVENTS) if event.t == "end")
    assert lines[0] == "a · tiny"
    assert lines[1] == "".join(map(text_of, EVENTS[: end + 1]))
    assert lines[2].startswith(f"[{EVENTS[0].drafter}: ")
    assert "gone; trying again" in capsys.readouterr().err


# ---- prompts --------------------------------------------------------------------------------


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
        answering(400, "application/json", body) as (address, _),
        pytest.raises(ServerError, match=said),
    ):
        ask_chat(ServerAddress(address), "Hi")


def test_a_reply_that_was_asked_for_is_printed_when_it_is_over(monkeypatch, capsys):
    monkeypatch.setattr(watch, "plain_lines", lambda items: islice(plain_lines(items), 3))
    with listening() as (port, _):
        assert main(["watch", f"127.0.0.1:{port}", "--ask", MESSAGES[0]["content"], "--plain"]) == 0
    name, text = capsys.readouterr().out.split("\n", 1)
    assert name.endswith(" · tiny")
    assert text.startswith(for_output(true_text(MESSAGES)))


def test_a_race_is_the_same_reply_with_drafts_and_plain():
    said = []
    with listening() as (port, _):
        server = ServerAddress(f"127.0.0.1:{port}")
        plain, drafted = run_twice(server, MESSAGES[0]["content"], say=said.append)
    assert said == ["run 1 of 2, with guesses", "run 2 of 2, model alone"]
    for run in (plain, drafted):
        assert [event.t for event in run[:2]] == ["turn", "meta"]
        assert "".join(map(text_of, run)) == true_text(MESSAGES)
    assert not any(event.t == "draft" for event in plain)
    assert any(event.t == "draft" for event in drafted)
    verdict = compare(plain, drafted)
    assert verdict.kind == "identical", verdict


def test_another_server_is_not_asked_for_a_race():
    with (
        answering(404, "text/event-stream") as (address, sent),
        pytest.raises(ServerError, match="only `mlxspec serve` streams the events"),
    ):
        run_twice(ServerAddress(address), "Hi")
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
