"""OpenAI's older completions of plain text: `/v1/completions`."""

from collections.abc import Sequence
from typing import Any

from mlxspec.params import GenerationParams
from mlxspec_server.apis.base import (
    COMMENT,
    DONE,
    REASONS,
    Lines,
    ends_of,
    event,
    failure,
    figures_of,
    now,
    token_text,
)
from mlxspec_server.asking import Ask, ask_of
from mlxspec_server.body import Body
from mlxspec_server.pieces import Piece, TokenLogprob
from mlxspec_server.refusals import Refusal
from mlxspec_server.writing import Writing

_MOST_LOGPROBS = 20


def completion_ask(body: Body, defaults: GenerationParams) -> Ask:
    """Return what a request for a completion asks for."""
    body.refuse("suffix", "text is written at the end alone")
    body.refuse("echo", "the prompt is not told again", allowed=(False,))
    body.refuse("best_of", "each reply is told: ask for n", allowed=(1, body.get("n")))
    num_logprobs = None
    if "logprobs" in body and body.get("logprobs") is not False:
        num_logprobs = body.whole("logprobs", 0, 0, _MOST_LOGPROBS)
    return ask_of(body, defaults, num_logprobs=num_logprobs)


class Completion:
    """Tells the replies to one request as completions: reasoning and answer are one text."""

    def __init__(self, writing: Writing, *, tells_usage: bool) -> None:
        self._writing, self._tells_usage = writing, tells_usage
        self._head = {"id": f"cmpl-{writing.name}", "object": "text_completion"}
        self._head |= {"created": now(), "model": writing.loaded.offer.name}  # type: ignore[dict-item]
        self._ends: list[Piece] = []

    def begin(self) -> Lines:
        return []

    def tell(self, piece: Piece) -> Lines:
        if piece.kind == "end":
            self._ends.append(piece)
        reason = REASONS.get(piece.reason, "length") if piece.kind == "end" else None
        choice = {"index": piece.index, "text": piece.text, "finish_reason": reason}
        choice["logprobs"] = self._logprobs(piece.logprobs)
        return [event(self._head | {"choices": [choice]})]

    def end(self) -> Lines:
        told = {"choices": [], **figures_of(self._writing, self._ends)}
        lines = [event(self._head | told)] if self._tells_usage else []
        return [*lines, DONE]

    def fail(self, refusal: Refusal) -> Lines:
        return failure(refusal)

    def keep_alive(self) -> Lines:
        return [COMMENT]

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        choices = []
        for end in ends_of(pieces):
            own = [piece for piece in pieces if piece.index == end.index]
            rows = [row for piece in own for row in piece.logprobs]
            choices.append(
                {
                    "index": end.index,
                    "text": "".join(piece.text for piece in own),
                    "finish_reason": REASONS.get(end.reason, "length"),
                    "logprobs": self._logprobs(rows),
                }
            )
        return self._head | {"choices": choices, **figures_of(self._writing, ends_of(pieces))}

    def _logprobs(self, rows: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if self._writing.ask.num_logprobs is None:
            return None
        tops = [{self._text(token): p for token, p in row.top} for row in rows]
        return {
            "tokens": [self._text(row.token) for row in rows],
            "token_logprobs": [row.logprob for row in rows],
            "top_logprobs": tops,
        }

    def _text(self, token: int) -> str:
        return token_text(self._writing, token)[0]
