"""What all APIs share: a request, and its replies, streamed or whole."""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from mlxspec import __version__
from mlxspec_server.asking import Ask
from mlxspec_server.body import Refusal
from mlxspec_server.pieces import Piece, TokenLogprob
from mlxspec_server.writing import Writing

Lines = list[str]
"""Server-sent events, each with its empty line."""

Stats = Mapping[str, Any]


class Api(ABC):
    """One request over an API: what it asks for, and its replies in the format of that API.

    Attributes:
        writing: Its replies, once a model is held for them.
        created: Seconds since 1970.
    """

    writing: Writing

    def __init__(self, ask: Ask) -> None:
        self.ask, self.created = ask, int(time.time())

    def begin(self) -> Lines:
        """Return the events at the start of a stream."""
        return []

    @abstractmethod
    def tell(self, piece: Piece) -> Lines:
        """Return the events for one piece."""

    @abstractmethod
    def end(self) -> Lines:
        """Return the events at the end of a stream, after all pieces."""

    @abstractmethod
    def fail(self, refusal: Refusal) -> Lines:
        """Return the events that report an error, which may come before `begin`."""

    def keep_alive(self) -> Lines:
        """Return the events sent after a silence: a comment line, which clients ignore."""
        return [": keep-alive\n\n"]

    @abstractmethod
    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """Return the reply as one document."""


class OpenAICompletions(Api):
    """What OpenAI's chat completions and its older completions have in common."""

    kind: ClassVar[str]
    """The start of an id."""
    chunk: ClassVar[str]
    """The type of a document of a stream."""

    def __init__(self, ask: Ask, *, tells_usage: bool) -> None:
        super().__init__(ask)
        self._tells_usage = tells_usage
        self._ends: list[Piece] = []

    def end(self) -> Lines:
        usage = [event(self.head(self.chunk, choices=[]) | self.figures(self._ends))]
        return [*(usage if self._tells_usage else []), "data: [DONE]\n\n"]

    def fail(self, refusal: Refusal) -> Lines:
        return [event(refusal.body(""))]

    def head(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Return the fields that every document repeats, and others."""
        own = {"id": f"{self.kind}-{self.writing.name}", "created": self.created, "object": kind}
        own |= {"model": self.writing.loaded.offer.name}
        return own | {"system_fingerprint": f"mlxspec-{__version__}"} | fields

    def figures(self, pieces: Iterable[Piece]) -> dict[str, Any]:
        """Return `usage` and `timings` of all replies."""
        stats = [end.stats for end in ends_of(pieces)]
        has_prediction = self.ask.params.prediction is not None
        usage = usage_of(stats, self.ask.num_prompts, has_prediction=has_prediction)
        return {"usage": usage, "timings": timings_of(stats[0], self.writing.loaded.drafter)}

    def logprob_row(self, found: TokenLogprob) -> dict[str, Any]:
        """Return a token's logprobs in the format of OpenAI's chat API."""
        rows = [
            {"token": raw.decode("utf-8", "replace"), "logprob": finite(logprob), "bytes": [*raw]}
            for token, logprob in ((found.token, found.logprob), *found.top)
            for raw in [self.writing.loaded.engine.tokenizer.token_bytes(token)]
        ]
        return rows[0] | {"top_logprobs": rows[1:]}


def event(data: object, name: str = "") -> str:
    """Return a server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n"


def reason_of(end: Piece, has_calls: bool = False) -> str:
    """Return the `finish_reason` of OpenAI's completions."""
    if end.reason not in ("stop", "repeating", "cancelled"):
        return "length"
    return "tool_calls" if has_calls else "stop"


def ends_of(pieces: Iterable[Piece]) -> list[Piece]:
    """Return the last piece of each reply, in order."""
    return sorted((p for p in pieces if p.kind == "end"), key=lambda piece: piece.index)


def said(pieces: Iterable[Piece], kind: str) -> str:
    """Return the text of all pieces of one kind."""
    return "".join(piece.text for piece in pieces if piece.kind == kind)


def finite(logprob: float) -> float:
    """Return a logprob that JSON can write: that of a forbidden token is minus infinity."""
    return max(logprob, -9999.0)


def usage_of(stats: Sequence[Stats], num_prompts: int, *, has_prediction: bool) -> dict[str, Any]:
    """Return the `usage` of OpenAI's completions for all replies to a request, in order.

    Predicted tokens appear only if the client sent a prediction. Our own drafts are not the
    client's predictions; `timings` reports them.
    """
    firsts = stats[:: len(stats) // num_prompts]  # each prompt counts once
    prompt = sum(one["prompt_tokens"] for one in firsts)
    written = sum(one["generated_tokens"] for one in stats)
    details = {"reasoning_tokens": sum(one["reasoning_tokens"] for one in stats)}
    if has_prediction:
        for name in ("accepted_prediction_tokens", "rejected_prediction_tokens"):
            details[name] = sum(one[name] for one in stats)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": sum(one["reused_tokens"] for one in firsts)},
        "completion_tokens_details": details,
    }


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
