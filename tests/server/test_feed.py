"""The live feed: whole recordings of all replies, and no watcher that holds the engine back."""

import asyncio
import json
import threading

import httpx2
import pytest

from mlxspec.trace.events import (
    EmittedToken,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    text_of,
)
from mlxspec.trace.file import event_from_json
from mlxspec.trace.stats import GenerationStats
from mlxspec_server import feed as module
from mlxspec_server.feed import MOST_WATCHERS, Feed
from mlxspec_server.server import Server
from mlxspec_server.settings import ServerSettings
from tests.support.served import MESSAGES, TOKENIZER, prepared, shelf, ticket, true_text, working

STARTED = GenerationStarted("tiny", "pool")


def token(number):
    return PlainDecoded(number, 0.1, (EmittedToken(number, "x", "plain"),), 1.0, number)


def read(line):
    """Kind, name of the reply, and event of a line of the feed."""
    head, data = line.removesuffix("\n\n").split("\n")
    data = json.loads(data.removeprefix("data: "))
    if head == "event: lost":
        return "lost", data["num_lost"]
    return data["reply"], event_from_json(json.dumps(data["event"]))


async def taken(lines, count):
    return [await asyncio.wait_for(anext(lines), 60) for _ in range(count)]


async def watching(feed):
    """The lines of one that watches from now on."""
    lines = feed.lines(60.0)
    assert (await taken(lines, 1))[0].startswith(":")
    return lines


def watching_at_once(feed):
    """The same, before the loop does what waits."""
    lines = feed.lines(60.0)
    with pytest.raises(StopIteration):
        anext(lines).send(None)
    return lines


def test_the_events_of_replies_are_a_whole_recording_of_each():
    told, ended = [], threading.Semaphore(0)

    def watch(model, name, event):
        told.append((model, name, event))
        if isinstance(event, GenerationFinished):
            ended.release()

    thread, loaded = prepared(watch)
    prompt, names = TOKENIZER.apply_chat_template(MESSAGES), ("one", "two")
    thread.ask(loaded, [ticket(loaded, name, prompt=prompt) for name in names])
    with working(thread):
        assert all(ended.acquire(timeout=60) for _ in names)
    assert {model for model, _, _ in told} == {"tiny"}
    for wanted in names:
        first, *rest = [event for _, name, event in told if name == wanted]
        assert isinstance(first, GenerationStarted)
        assert (first.target, first.drafter, first.lossless) == ("tiny", "pool", "greedy")
        assert "".join(map(text_of, rest)) == true_text(MESSAGES)
        stats = GenerationStats()
        for event in rest:
            stats.add(event)
        assert stats.as_dict().items() <= (rest[-1].stats | {"total_s": stats.total_s}).items()


async def test_who_comes_late_is_told_how_the_replies_began_and_nothing_twice():
    feed = Feed()
    first = await watching(feed)
    feed.publish("tiny", "over", STARTED)
    feed.publish("tiny", "over", GenerationFinished(0.1, "stop"))
    feed.publish("tiny", "broken", STARTED)
    feed.publish("tiny", "broken", GenerationFailed(0.1, "no memory"))
    feed.publish("tiny", "runs", STARTED)
    feed.publish("tiny", "runs", token(1))
    late = watching_at_once(feed)  # while the loop has told nobody anything yet
    feed.publish("tiny", "runs", token(2))
    assert list(map(read, await taken(late, 2))) == [("runs", STARTED), ("runs", token(2))]
    names = [name for name, _ in map(read, await taken(first, 7))]
    assert names == ["over", "over", "broken", "broken", "runs", "runs", "runs"]
    feed.close()
    assert [line async for line in late] == []


async def test_a_watcher_that_stalls_loses_events_and_is_told_how_many(monkeypatch):
    monkeypatch.setattr(module, "_MOST_HELD", 5)
    feed = Feed()
    slow, quick = await watching(feed), await watching(feed)
    for number in range(1, 9):
        feed.publish("tiny", "a", token(number))
        assert read(*await taken(quick, 1)) == ("a", token(number))
    first, lost, *rest = map(read, await taken(slow, 6))
    assert (first, lost) == (("a", token(1)), ("lost", 3))
    assert rest == [("a", token(number)) for number in range(2, 6)]
    feed.publish("tiny", "a", token(9))
    assert read(*await taken(slow, 1)) == ("a", token(9))


async def test_lines_are_written_in_the_loop_and_only_while_somebody_watches(monkeypatch):
    """The thread that computes hands an event over: it waits for no line and no watcher."""
    threads = []
    write = module.event_to_json

    def noting(event):
        threads.append(threading.current_thread())
        return write(event)

    monkeypatch.setattr(module, "event_to_json", noting)
    feed = Feed()
    await asyncio.to_thread(feed.publish, "tiny", "a", token(1))
    assert threads == []
    lines = await watching(feed)
    await asyncio.to_thread(feed.publish, "tiny", "a", token(2))
    await taken(lines, 1)
    assert threads == [threading.main_thread()]
    await lines.aclose()
    await asyncio.to_thread(feed.publish, "tiny", "a", token(3))
    await asyncio.sleep(0)
    assert len(threads) == 1


async def test_half_a_character_in_a_text_ends_no_stream():
    feed = Feed()
    lines = await watching(feed)
    event = PlainDecoded(1, 0.1, (EmittedToken(1, "\ud800\n", "plain"),), 1.0, 1)
    feed.publish("tiny", "a", event)
    (line,) = await taken(lines, 1)
    line.encode()
    assert read(line) == ("a", event)


async def test_only_so_many_may_watch():
    server = Server(shelf(), ServerSettings())
    streams = [await watching(server.feed) for _ in range(MOST_WATCHERS)]
    transport = httpx2.ASGITransport(server.app())
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        found = await asyncio.wait_for(client.get("/v1/events"), 10)  # a feed has no end
    assert found.status_code == 503
    assert "16 clients watch already" in found.json()["error"]["message"]
    await streams[0].aclose()
    assert not server.feed.is_full


def test_a_round_that_fails_ends_the_reply_for_those_who_watch(monkeypatch):
    told, failed = [], threading.Event()

    def watch(model, name, event):
        told.append(event)
        if isinstance(event, GenerationFailed):
            failed.set()

    thread, loaded = prepared(watch)

    def step():
        raise MemoryError("no memory")

    monkeypatch.setattr(loaded.batch, "step", step)
    thread.ask(loaded, [ticket(loaded)])
    with working(thread):
        assert failed.wait(20)
    assert [type(event) for event in told] == [GenerationStarted, GenerationFailed]
    assert told[-1].message == "no memory"


def test_a_reply_is_a_line_of_the_log_with_its_speed_and_none_of_its_text(caplog):
    caplog.set_level("INFO", logger="uvicorn.error")
    feed = Feed()
    feed.publish("tiny", "secret-name", STARTED)
    feed.publish("tiny", "secret-name", token(1))
    stats = {"generated_tokens": 128, "generation_tps": 45.21, "accepted": 81}
    feed.publish("tiny", "secret-name", GenerationFinished(2.0, "stop", stats=stats))
    assert caplog.messages == ["tiny: 128 tokens, 45.2 tokens/s, 63 % guessed"]
