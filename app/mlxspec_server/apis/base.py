"""What all APIs share: a request, and its replies, streamed or whole."""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mlxspec_server.asking import Ask
from mlxspec_server.body import Refusal
from mlxspec_server.pieces import Piece
from mlxspec_server.writing import Writing

Lines = list[str]
"""Server-sent events, each with its empty line."""

Stats = Mapping[str, Any]


class Api(ABC):
    """One request over an API: what it asks for, and its replies in the format of that API."""

    writing: Writing  # its replies, once a model is held for them

    def __init__(self, ask: Ask) -> None:
        self.ask, self.created = ask, int(time.time())  # seconds since 1970

    def begin(self) -> Lines:
        """Return the events at the start of a stream."""
        return []

    @abstractmethod
    def tell(self, piece: Piece) -> Lines:
        """Return the events for one piece."""

    @abstractmethod
    def end(self, ends: Sequence[Piece]) -> Lines:
        """Return the events at the end of a stream; `ends` are the last pieces of its replies."""

    @abstractmethod
    def fail(self, refusal: Refusal) -> Lines:
        """Return the events that report an error, which may come before `begin`."""

    def keep_alive(self) -> Lines:
        """Return the events sent after a silence: a comment line, which clients ignore."""
        return [": keep-alive\n\n"]

    @abstractmethod
    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """Return the reply as one document."""


def event(data: object, name: str = "") -> str:
    """Return a server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n"


def reason_of(end: Piece, has_calls: bool = False) -> str:
    """Return the `finish_reason` of OpenAI's completions."""
    if end.reason not in ("stop", "repeating", "cancelled"):
        return "length"
    return "tool_calls" if has_calls else "stop"


def hash_of(end: Piece) -> dict[str, str]:
    """Return the field that compares the tokens of a reply with those of another."""
    return {"token_hash": end.stats["token_hash"]}


def ends_of(pieces: Iterable[Piece]) -> list[Piece]:
    """Return the last piece of each reply, in order."""
    return sorted((p for p in pieces if p.kind == "end"), key=lambda piece: piece.index)


def said(pieces: Iterable[Piece], kind: str) -> str:
    """Return the text of all pieces of one kind."""
    return "".join(piece.text for piece in pieces if piece.kind == kind)


def timings_of(stats: Stats, drafter: str) -> dict[str, Any]:
    """Return the figures of a reply under llama.cpp's names, with acceptance of drafts."""
    read = stats["prompt_tokens"] - stats["reused_tokens"]
    prompt_ms = stats["prefill_s"] * 1e3
    predicted_ms = max(stats["total_s"] - stats["prefill_s"], 0.0) * 1e3
    return {
        "cache_n": stats["reused_tokens"],
        "prompt_n": read,
        "prompt_ms": round(prompt_ms, 3),
        "prompt_per_second": _per_second(read, prompt_ms),
        "predicted_n": stats["generated_tokens"],
        "predicted_ms": round(predicted_ms, 3),
        "predicted_per_second": _per_second(stats["generated_tokens"], predicted_ms),
        "draft_n": stats["drafted"],
        "draft_n_accepted": stats["accepted"],
        "draft_rounds": stats["rounds"],
        "draft_kind": drafter,
    }


def _per_second(count: int, ms: float) -> float:
    return round(count * 1e3 / ms, 3) if ms else 0.0
