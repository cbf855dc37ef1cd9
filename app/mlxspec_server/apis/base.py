"""What all APIs share: how a reply is written, streamed or whole."""

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from mlxspec import __version__
from mlxspec_server.figures import timings_of, usage_of
from mlxspec_server.pieces import Piece, TokenLogprob
from mlxspec_server.refusals import Refusal
from mlxspec_server.writing import Writing

Lines = list[str]
"""Server-sent events, each with its empty line."""


class Api(Protocol):
    """Writes the replies to one request in the format of an API."""

    def begin(self) -> Lines:
        """Return the events at the start of a stream."""

    def tell(self, piece: Piece) -> Lines:
        """Return the events for one piece."""

    def end(self) -> Lines:
        """Return the events at the end of a stream, after all pieces."""

    def fail(self, refusal: Refusal) -> Lines:
        """Return the events that report an error."""

    def keep_alive(self) -> Lines:
        """Return the events sent after a silence."""

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """Return the reply as one document."""


def event(data: object, name: str = "") -> str:
    """Return a server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n"


COMMENT = ": keep-alive\n\n"
"""A comment line, which clients of server-sent events ignore."""


DONE = "data: [DONE]\n\n"
"""The last line of a stream of OpenAI's completions."""

REASONS = {"stop": "stop", "repeating": "stop", "cancelled": "stop"}
"""`finish_reason` of OpenAI's completions by our reason; any other reason is "length"."""


def failure(refusal: Refusal) -> Lines:
    """Return the events that report an error in a stream of OpenAI's completions."""
    return [event(refusal.body(""))]


def head_of(writing: Writing, kind: str) -> dict[str, Any]:
    """Return the fields that every document of OpenAI's completions repeats."""
    head = {"id": f"{kind}-{writing.name}", "created": now(), "model": writing.loaded.offer.name}
    return head | {"system_fingerprint": f"mlxspec-{__version__}"}


def figures_of(writing: Writing, pieces: Iterable[Piece]) -> dict[str, Any]:
    """Return `usage` and `timings` in the format of OpenAI's completions."""
    stats = [end.stats for end in ends_of(pieces)]
    has_prediction = writing.ask.params.prediction is not None
    usage = usage_of(stats, writing.ask.num_prompts, has_prediction=has_prediction)
    return {"usage": usage, "timings": timings_of(stats[0], writing.loaded.drafter)}


def reason_of(end: Piece, has_calls: bool) -> str:
    """Return the `finish_reason` of OpenAI's chat API."""
    reason = REASONS.get(end.reason, "length")
    return "tool_calls" if has_calls and reason == "stop" else reason


def now() -> int:
    """Return the seconds since 1970."""
    return int(time.time())


def ends_of(pieces: Iterable[Piece]) -> list[Piece]:
    """Return the last piece of each reply, in order."""
    return sorted((p for p in pieces if p.kind == "end"), key=lambda piece: piece.index)


def said(pieces: Iterable[Piece], kind: str) -> str:
    """Return the text of all pieces of one kind."""
    return "".join(piece.text for piece in pieces if piece.kind == kind)


def token_text(writing: Writing, token: int) -> tuple[str, list[int]]:
    """Return the text of a single token, and its bytes."""
    raw = writing.loaded.engine.tokenizer.token_bytes(token)
    return raw.decode("utf-8", "replace"), list(raw)


def finite(logprob: float) -> float:
    """Return a logprob that JSON can write: that of a forbidden token is minus infinity."""
    return max(logprob, -9999.0)


def logprob_row(writing: Writing, found: TokenLogprob) -> dict[str, Any]:
    """Return a token's logprobs in the format of OpenAI's chat API."""
    return _row(writing, found.token, found.logprob) | {
        "top_logprobs": [_row(writing, token, logprob) for token, logprob in found.top]
    }


def _row(writing: Writing, token: int, logprob: float) -> dict[str, Any]:
    text, raw = token_text(writing, token)
    return {"token": text, "logprob": finite(logprob), "bytes": raw}
