"""Mixed load over a tiny model: the server's memory as a curve, minute by minute.

Clients ask all routes, streamed and not, for text, for JSON under a schema and with tools, with
prompts of many lengths that share beginnings or do not; some cancel, some go without a word. Every
minute is a row: what the process uses, and who holds it.
"""

import contextlib
import json
import statistics
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from tests.campaigns.serving.asking import Refused, opened
from tests.campaigns.serving.attacks import cancels, goes
from tests.campaigns.serving.figures import table
from tests.campaigns.serving.process import Served, served
from tests.support.chat_folders import save_chat_folder

MOST_GROWTH = 0.10  # of the tenth minute
_FROM = 10  # minutes: caches are full
_BEGINNINGS = ("You are an agent. " * 20, "The harbour log. " * 8, "")
_KEYS = ("name", "count", "ready", "tags", "next")
_SHOWN = ("rss_mb", "malloc_used_mb", "malloc_held_mb", "mlx_active_mb", "mlx_cache_mb", "blocks")


def run(args: Namespace) -> dict[str, Any]:
    """Let the clients work for some minutes, and judge the curve."""
    acts: Counter[str] = Counter()
    curve: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = save_chat_folder(Path(name) / "tiny")
        inside = Path(name) / "inside.jsonl"
        flags = [str(folder), *args.flag, "--log-level", "ERROR"]
        with served(flags, inside=inside) as server:
            end = time.monotonic() + 60 * args.minutes
            threads = [
                threading.Thread(target=_be_client, args=(server, acts, Random(seed), end))
                for seed in range(args.seed * 1000, args.seed * 1000 + args.clients)
            ]
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                time.sleep(min(60.0, max(1.0, end - time.monotonic())))
                _note(curve, inside, acts, args.curve)
    return _told(curve, acts)


def _be_client(server: Served, acts: Counter[str], draw: Random, end: float) -> None:
    while time.monotonic() < end:
        act = draw.choices(("asks", "cancels", "goes"), (8, 1, 1))[0]
        with contextlib.suppress(ConnectionError):
            if act == "asks":
                act = _asks(server, draw)
            else:
                act = {"cancels": cancels, "goes": goes}[act](server, draw)
        acts[act] += 1


def _asks(server: Served, draw: Random) -> str:
    path = draw.choice([*_BODIES])
    is_streamed = draw.random() < 0.5
    body = {**_BODIES[path](_text(draw), draw), "model": server.model, "stream": is_streamed}
    body["temperature"] = draw.choice((0, 0.8, 1.2))
    try:
        connection, response = opened(server.url, path, body)
    except Refused as refused:
        return f"refused, {str(refused)[:90]}"
    with contextlib.closing(connection):
        response.read()
    return path


def _text(draw: Random) -> str:
    """Return a prompt: a beginning that others have too, and words of its own."""
    words = ("pier", "lamp", "rope", "bell", "crane", "fender", str(draw.randrange(10**6)))
    own = " ".join(draw.choices(words, k=draw.choice((1, 4, 16, 60, 120))))
    return draw.choice(_BEGINNINGS) + own


def _chat(text: str, draw: Random) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": text}]}
    kind = draw.random()
    if kind < 0.3:
        schema = {"name": "answer", "schema": _schema(draw)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif kind < 0.5:
        function = {"name": draw.choice(_KEYS), "parameters": _schema(draw)}
        body["tools"] = [{"type": "function", "function": function}]
    elif kind < 0.7:
        body |= {"logprobs": True, "top_logprobs": 3, "n": draw.choice((1, 2, 3))}
    return body | {"max_tokens": _length(draw)}


def _plain(text: str, draw: Random) -> dict[str, Any]:
    return {"prompt": text, "max_tokens": _length(draw), "stop": ["zz"]}


def _message(text: str, draw: Random) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": text}]}
    if draw.random() < 0.3:
        body["tools"] = [{"name": draw.choice(_KEYS), "input_schema": _schema(draw)}]
    return body | {"max_tokens": _length(draw), "system": draw.choice(_BEGINNINGS)}


def _response(text: str, draw: Random) -> dict[str, Any]:
    return {"input": text, "max_output_tokens": max(16, _length(draw))}


_BODIES = {
    "/v1/chat/completions": _chat,
    "/v1/completions": _plain,
    "/v1/messages": _message,
    "/v1/responses": _response,
}


def _length(draw: Random) -> int:
    return draw.choice((1, 4, 12, 40, 100))


def _schema(draw: Random) -> dict[str, Any]:
    """Return a schema; there are many, so that compiled ones are dropped too."""
    kinds = ({"type": "integer"}, {"type": "boolean"}, {"enum": ["a", "b"]}, {"type": "null"})
    names = [f"{key}{draw.randrange(20)}" for key in draw.sample(_KEYS, k=draw.randint(1, 3))]
    own = {name: draw.choice(kinds) for name in names}
    return {"type": "object", "properties": own, "required": names}


def _note(
    curve: list[dict[str, float]], inside: Path, acts: Counter[str], out: Path | None
) -> None:
    """Add a row for the last minute: medians of what the process wrote down."""
    rows = [json.loads(line) for line in inside.read_text().splitlines() if line.endswith("}")]
    last = [row for row in rows if row["seconds"] > rows[-1]["seconds"] - 60]
    row = {name: statistics.median(one[name] for one in last) for name in last[0]}
    minute = rows[-1]["seconds"] / 60
    curve.append({**row, "minute": round(minute, 1), "requests": sum(acts.values())})
    print(json.dumps(curve[-1]), file=sys.stderr)
    if out is not None:
        out.write_text("".join(json.dumps(each) + "\n" for each in curve))


def _told(curve: list[dict[str, float]], acts: Counter[str]) -> dict[str, Any]:
    print(table([{name: row[name] for name in ("minute", "requests", *_SHOWN)} for row in curve]))
    print(", ".join(f"{count} {act}" for act, count in acts.most_common()))
    found: dict[str, Any] = {"curve": curve, "acts": dict(acts), "is_good": True}
    early = [row["rss_mb"] for row in curve if row["minute"] >= _FROM][:1]
    if early:
        growth = curve[-1]["rss_mb"] / early[0] - 1
        found["is_good"] = growth <= MOST_GROWTH
        print(f"verdict: {growth:+.1%} since the tenth minute")
    return found
