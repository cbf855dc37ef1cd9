"""A server over a tiny model that chats in bytes, and what that model says by itself."""

import json
import threading
import time
from contextlib import contextmanager

import uvicorn
from starlette.testclient import TestClient

from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.suffix.drafter import SuffixDrafter
from mlxspec.params import GenerationParams
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
    app = Server.of(on or shelf(), found).app()
    with TestClient(app, base_url="http://localhost") as client:
        yield client


@contextmanager
def listening(on=None, **settings):
    """A server on a real socket, in a thread: its port, and itself."""
    params = GenerationParams(max_tokens=LENGTH)
    found = ServerSettings(**{"params": params, "port": 0, **settings})
    server = Server.of(on or shelf(), found)
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
