"""Makes events of the chunks in which a server streams a reply, as far as they tell.

A chunk is one of OpenAI's chat completions. llama.cpp's server adds counts to each where the
request has `timings_per_token`: tokens written, drafted and accepted so far. All chunks of one
round have the same counts, so what they grew by is the round:

    predicted_n  1  5  5  5  5  6        one token, a round of four, one token
    draft_n      0  3  3  3  3  3        three were drafted,
    accepted     0  3  3  3  3  3        all accepted, and the target added one

Its drafts are chains, and the texts of rejected tokens are not told. mlx-vlm and LM Studio tell
counts of the whole reply in its last chunk, and mlx-lm none: their chunks count as one token each,
and nothing is said of who wrote them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mlxspec.trace.events import (
    Channel,
    DraftNode,
    DraftProposed,
    DraftVerified,
    EmittedToken,
    Event,
    FinishReason,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    PrefillProgress,
    TokenKind,
)
from mlxspec_app.sessions.servers.items import FiguresTold

_NO_TOKEN = -1  # servers tell texts, not ids
_MOST_NODES = 1024
_REASONS: dict[str, FinishReason] = {"length": "length", "cancelled": "cancelled"}


class _Counts(NamedTuple):
    """Tokens so far, as a server tells them."""

    written: int = 0
    drafted: int = 0
    accepted: int = 0


class _Piece(NamedTuple):
    text: str
    channel: Channel


@dataclass
class _Round:
    """A round whose chunks still come; its counts are those of this round alone."""

    counts: _Counts
    pieces: list[_Piece] = field(default_factory=list)


class ToldReply:
    """A reply, from its chunks.

    Attributes:
        model: Name of the model, as the first chunk tells it.
        name: Name of the reply, likewise.
    """

    def __init__(self) -> None:
        """Begin before the first chunk."""
        self.model, self.name = "model", "reply"
        self._is_begun = self._tells_rounds = False
        self._counts = _Counts()
        self._round: _Round | None = None
        self._num_rounds, self._last_ts = 0, 0.0
        self._reason = ""
        self._last: dict[str, Any] = {}

    def add(self, chunk: Mapping[str, Any], ts: float) -> Iterator[Event]:
        """Yield the events that a chunk completes.

        Args:
            chunk: A chunk of a chat completion; what it lacks is not told.
            ts: Seconds since the prompt was sent.
        """
        if not self._is_begun:
            self.model = _text(chunk, "model") or self.model
            self.name = _text(chunk, "id").removeprefix("chatcmpl-") or self.name
        self._last |= {key: chunk[key] for key in ("usage", "timings", "stats") if chunk.get(key)}
        choice = _first(chunk)
        self._reason = _text(choice, "finish_reason") or self._reason
        piece = _piece(_mapping(choice, "delta"))
        timings = _mapping(chunk, "timings")
        if piece and not self._is_begun:
            self._tells_rounds = "predicted_n" in timings
            yield from self._begin(timings, ts)
        if self._tells_rounds and "predicted_n" in timings:
            yield from self._add_counted(piece, _counts(timings), ts)
        elif piece:
            yield from self._plain([piece], ts)

    def end(self, ts: float) -> Iterator[Event]:
        """Yield the last events; called when the stream is over."""
        if not self._is_begun:  # it has no text
            yield from self._begin(_mapping(self._last, "timings"), ts)
        yield from self._close(ts)
        if self._reason:
            yield GenerationFinished(ts, _REASONS.get(self._reason, "stop"))
        else:
            yield GenerationFailed(ts, "the stream was cut off before the reply ended")

    @property
    def whole(self) -> FiguresTold | None:
        """What the server told of the reply as a whole; None where it told the rounds."""
        if self._tells_rounds:
            return None
        usage, timings = _mapping(self._last, "usage"), _mapping(self._last, "timings")
        written = _number(usage, "completion_tokens") or _number(timings, "predicted_n")
        words = "nothing of drafts"
        for told, drafted, accepted in (
            (timings, "draft_n", "draft_n_accepted"),
            (_mapping(self._last, "stats"), *_STUDIO),
            (usage, *_STUDIO),
        ):
            if num := _number(told, drafted):
                rounds = _number(told, "draft_rounds")
                inside = f" in {rounds} rounds" if rounds else ""
                words = f"{_number(told, accepted)} of {num} draft tokens accepted{inside}"
                break
        return FiguresTold(self.name, words, written)

    def _begin(self, timings: Mapping[str, Any], ts: float) -> Iterator[Event]:
        """Yield the first events; the prompt ends with the first text."""
        self._is_begun, self._last_ts = True, ts
        yield GenerationStarted(target=self.model, drafter="", lossless="")
        reused = _number(timings, "cache_n")
        total = _number(timings, "prompt_n") + reused
        yield PrefillProgress(ts, total, total, reused)

    def _add_counted(self, piece: _Piece | None, counts: _Counts, ts: float) -> Iterator[Event]:
        if counts != self._counts:
            yield from self._close(ts)
            grown = [max(0, new - old) for new, old in zip(counts, self._counts, strict=True)]
            self._counts, self._round = counts, _Round(_Counts(*grown))
        if piece:
            self._round = self._round or _Round(_Counts(written=1))
            self._round.pieces.append(piece)
        if self._round and len(self._round.pieces) >= self._round.counts.written > 0:
            yield from self._close(ts)

    def _close(self, ts: float) -> Iterator[Event]:
        """Yield the events of the round that was open."""
        ended, self._round = self._round, None
        if ended is None:
            return
        missing = min(ended.counts.written, _MOST_NODES) - len(ended.pieces)
        pieces = ended.pieces + [_Piece("", "answer")] * missing  # halves of characters, an end
        if ended.counts.drafted:
            yield from self._drafted(ended.counts, pieces, ts)
        else:
            yield from self._plain(pieces, ts)

    def _drafted(self, counts: _Counts, pieces: list[_Piece], ts: float) -> Iterator[Event]:
        num = min(counts.drafted, _MOST_NODES)
        accepted = min(counts.accepted, num)
        texts = [piece.text for piece in pieces[:accepted]]
        texts += [""] * (num - len(texts))
        nodes = tuple(
            DraftNode(index, index - 1, _NO_TOKEN, text, None, "draft")
            for index, text in enumerate(texts, 1)
        )
        last: TokenKind = "bonus" if accepted == num else "corrected"
        emit = tuple(
            _emitted(piece, "accepted" if index < accepted else last)
            for index, piece in enumerate(pieces)
        )
        r, ms = self._next_round(ts)
        yield DraftProposed(r, ts, _NO_TOKEN, nodes, 0.0)
        path = tuple(range(1, accepted + 1))
        yield DraftVerified(r, ts, path, emit, ms, num - accepted, 0)

    def _plain(self, pieces: list[_Piece], ts: float) -> Iterator[Event]:
        for piece in pieces:
            r, ms = self._next_round(ts)
            yield PlainDecoded(r, ts, (_emitted(piece, "plain"),), ms, 0)

    def _next_round(self, ts: float) -> tuple[int, float]:
        self._num_rounds += 1
        ms, self._last_ts = (ts - self._last_ts) * 1e3, ts
        return self._num_rounds, ms


_STUDIO = "total_draft_tokens_count", "accepted_draft_tokens_count"


def _counts(timings: Mapping[str, Any]) -> _Counts:
    names = ("predicted_n", "draft_n", "draft_n_accepted")
    return _Counts(*(_number(timings, name) for name in names))


def _piece(delta: Mapping[str, Any]) -> _Piece | None:
    if text := _text(delta, "content"):
        return _Piece(text, "answer")
    text = _text(delta, "reasoning_content") or _text(delta, "reasoning")
    return _Piece(text, "reasoning") if text else None


def _emitted(piece: _Piece, kind: TokenKind) -> EmittedToken:
    return EmittedToken(_NO_TOKEN, piece.text, kind, channel=piece.channel)


def _first(chunk: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = chunk.get("choices")
    found = choices[0] if isinstance(choices, list) and choices else None
    return found if isinstance(found, Mapping) else {}


def _mapping(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = found.get(name)
    return value if isinstance(value, Mapping) else {}


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    return value if isinstance(value, str) else ""


def _number(found: Mapping[str, Any], name: str) -> int:
    value = found.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
