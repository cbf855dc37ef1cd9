"""A server over a tiny model that chats in bytes, and what that model says by itself."""

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn
from starlette.testclient import TestClient

from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.params import GenerationParams
from mlxspec_server.engine_thread import EngineThread, Ticket
from mlxspec_server.run import config_of, listen
from mlxspec_server.server import Server
from mlxspec_server.settings import ServerSettings
from mlxspec_server.shelf import Offer, Shelf
from tests.support.tiny import make_engine, tiny_model
from tests.support.toy_chat import CHATML, byte_tokenizer
from tests.support.truth import Target

TOKENIZER = byte_tokenizer(CHATML)
MODEL = tiny_model(vocab_size=TOKENIZER.vocab_size)
OTHER = tiny_model(vocab_size=TOKENIZER.vocab_size, seed=8)
TARGET = Target(MODEL)
LENGTH = 10
MESSAGES = [{"role": "user", "content": "Hi"}]
ASKED = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 9},
}
"""The least that each API has to be sent."""

JSON = {"content-type": "application/json"}


def engine(model=MODEL, tokenizer=TOKENIZER):
    drafter = PoolDrafter([SuffixDrafter()])
    return make_engine(model, drafter, tokenizer=tokenizer)


def shelf(**changes):
    models = {"tiny": MODEL, "other": OTHER}
    others = [Offer("tiny", "here/tiny"), Offer("other", "here/other")]
    loads = {"load_engine": lambda offer: engine(models[offer.name]), "list_offers": lambda: others}
    return Shelf(others[0], **{**loads, "prefix_bytes": 1 << 22, **changes})


@contextmanager
def serving(on=None, **settings):
    params = GenerationParams(max_tokens=LENGTH)
    own = {"params": params, "keep_alive_s": 0.5}
    found = ServerSettings(**{**own, **settings})
    app = Server(on or shelf(), found).app()
    with TestClient(app, base_url="http://localhost") as client:
        yield client


@contextmanager
def listening(on=None, **settings):
    """A server on a real socket, in a thread: its port, and itself."""
    params = GenerationParams(max_tokens=LENGTH)
    found = ServerSettings(**{"params": params, "port": 0, **settings})
    server = Server(on or shelf(), found)
    running = uvicorn.Server(config_of(server, "ERROR"))
    thread = threading.Thread(target=running.run, args=([listen(found)],))
    thread.start()
    deadline = time.monotonic() + 60
    while not running.started and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        yield running.servers[0].sockets[0].getsockname()[1], server
    finally:
        server.feed.close()  # else it waits for those who watch
        running.should_exit = True
        thread.join(60)
    assert not thread.is_alive()


def prepared(watch=lambda model, name, event: None):
    """An engine thread that has not started, and the model that it has loaded."""
    thread = EngineThread(shelf(), watch)
    return thread, thread.shelf.load(thread.shelf.main)


@contextmanager
def working(thread):
    """Let an engine thread work as long as the block lasts."""
    thread.start()
    try:
        yield
    finally:
        thread.stop()


def ticket(loaded, name="one", deliver=lambda event, logprobs: None, prompt="Hi", **settings):
    job = loaded.engine.job(prompt, GenerationParams(**{"max_tokens": LENGTH, **settings}))
    return Ticket(name, job, deliver)


def true_text(prompt, target=TARGET, length=LENGTH):
    """The text of the target computed anew in NumPy, after a chat or after plain text."""
    text = prompt if isinstance(prompt, str) else TOKENIZER.render_chat(prompt)
    tokens = TOKENIZER.encode(text, add_special_tokens=False)
    return TOKENIZER.decode(target.greedy(tokens, length))


def data_of(response):
    """The documents of a stream, without comments and the last mark."""
    lines = response.text.split("\n\n")
    rows = [line.split("data: ", 1)[1] for line in lines if "data: " in line]
    return [json.loads(row) for row in rows if row != "[DONE]"]


@dataclass
class Told:
    """What an answer tells over any API, streamed or whole.

    `calls` are names and arguments; `rows` are the documents of the answer.
    """

    text: str
    calls: list[tuple[str, str]]
    reason: str
    num_tokens: int
    rows: list


def told(response):
    """Read an answer with one reply, whichever API it is of."""
    assert response.status_code == 200, response.text
    is_streamed = response.headers["content-type"].startswith("text/event-stream")
    rows = data_of(response) if is_streamed else [response.json()]
    kind = rows[0].get("object") or rows[0]["type"]
    if kind.startswith("response"):
        whole = rows[-1]["response"] if is_streamed else rows[0]
        parts = [part["text"] for item in whole["output"] for part in item.get("content", ())]
        calls = [(i["name"], i["arguments"]) for i in whole["output"] if "arguments" in i]
        return Told("".join(parts), calls, whole["status"], whole["usage"]["output_tokens"], rows)
    if kind.startswith("message"):
        return _told_message(rows, is_streamed)
    choices = [row["choices"][0] for row in rows if row["choices"]]
    said = [
        one.get("delta") or one.get("message") or {"content": one.get("text")} for one in choices
    ]
    calls = {}
    for number, call in enumerate(call for one in said for call in one.get("tool_calls", ())):
        name, arguments = calls.get(call.get("index", number), ("", ""))
        function = call["function"]
        own = (name + function.get("name", ""), arguments + function["arguments"])
        calls[call.get("index", number)] = own
    text = "".join(one.get("content") or "" for one in said)
    usage = rows[-1].get("usage", {}).get("completion_tokens")
    return Told(text, list(calls.values()), choices[-1]["finish_reason"], usage, rows)


def _told_message(rows, is_streamed):
    if not is_streamed:
        (whole,) = rows
        blocks, end = whole["content"], whole
    else:
        blocks = [row["content_block"] for row in rows if row["type"] == "content_block_start"]
        for row in (row for row in rows if row["type"] == "content_block_delta"):
            block, delta = blocks[row["index"]], row["delta"]
            block["text"] = block.get("text", "") + delta.get("text", "")
            block["json"] = block.get("json", "") + delta.get("partial_json", "")
        end = next(row for row in rows if row["type"] == "message_delta")
    uses = [block for block in blocks if block["type"] == "tool_use"]
    calls = [(use["name"], use.get("json") or json.dumps(use["input"])) for use in uses]
    text = "".join(block.get("text", "") for block in blocks)
    reason = end.get("delta", end)["stop_reason"]
    return Told(text, calls, reason, end["usage"]["output_tokens"], rows)
