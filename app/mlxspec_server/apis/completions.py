"""OpenAI's older completions of plain text: `/v1/completions`."""

from collections.abc import Sequence
from dataclasses import replace
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
    finite,
    head_of,
    token_text,
)
from mlxspec_server.asking import Ask, ask_of
from mlxspec_server.body import Body
from mlxspec_server.pieces import Piece, TokenLogprob
from mlxspec_server.refusals import Refusal
from mlxspec_server.writing import Writing

_MOST_LOGPROBS = 20


def completion_ask(body: Body, defaults: GenerationParams) -> Ask:
    """Return the settings that a completion asks for."""
    num_logprobs = None
    if "logprobs" in body and body.get("logprobs") is not False:
        num_logprobs = body.whole("logprobs", 0, 0, _MOST_LOGPROBS)
    ask, num_prompts = ask_of(body, defaults, num_logprobs=num_logprobs), len(prompts_of(body))
    return replace(ask, num_replies=ask.num_replies * num_prompts, num_prompts=num_prompts)


def prompts_of(body: Body) -> list[Any]:
    """Return the prompts of a request, not yet checked."""
    stated = body.get("prompt")
    is_list = isinstance(stated, list) and all(isinstance(one, str | list) for one in stated)
    return stated if is_list and stated else [stated]


class Completion:
    """Writes the replies to one request as completions: reasoning and answer are one text."""

    def __init__(self, writing: Writing, *, tells_usage: bool) -> None:
        self._writing, self._tells_usage = writing, tells_usage
        self._head = {**head_of(writing, "cmpl"), "object": "text_completion"}
        self._ends: list[Piece] = []
        self._lengths: dict[int, int] = {}  # characters sent of each reply

    def begin(self) -> Lines:
        return []

    def tell(self, piece: Piece) -> Lines:
        if piece.kind == "end":
            self._ends.append(piece)
        reason = REASONS.get(piece.reason, "length") if piece.kind == "end" else None
        choice = {"index": piece.index, "text": piece.text, "finish_reason": reason}
        choice["logprobs"] = self._logprobs([piece])
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
            choices.append(
                {
                    "index": end.index,
                    "text": "".join(piece.text for piece in own),
                    "finish_reason": REASONS.get(end.reason, "length"),
                    "logprobs": self._logprobs(own),
                }
            )
        return self._head | {"choices": choices, **figures_of(self._writing, pieces)}

    def _logprobs(self, pieces: Sequence[Piece]) -> dict[str, Any] | None:
        if self._writing.ask.num_logprobs is None:
            return None
        rows: list[TokenLogprob] = []
        offsets: list[int] = []
        for piece in pieces:
            start = self._lengths.get(piece.index, 0)
            self._lengths[piece.index] = start + len(piece.text)
            before = ""
            for row in piece.logprobs:
                offsets.append(start + min(len(before), len(piece.text)))
                before += token_text(self._writing, row.token)[0]
            rows += piece.logprobs
        return {
            "tokens": [self._name(row.token) for row in rows],
            "token_logprobs": [finite(row.logprob) for row in rows],
            "top_logprobs": [self._top(row) for row in rows],
            "text_offset": offsets,
        }

    def _top(self, row: TokenLogprob) -> dict[str, float]:
        """Return the most probable tokens by name, and the drawn one."""
        found = {self._name(row.token): finite(row.logprob)}
        for token, logprob in row.top:
            name = self._name(token)
            # Several tokens can have the same text: the drawn token gets the plain name, then the
            # most probable.
            key = f"token_id:{token}" if name in found and token != row.token else name
            found[key] = finite(logprob)
        return found

    def _name(self, token: int) -> str:
        """Return the text of a token; its name or its bytes if it has no text of its own."""
        tokenizer = self._writing.loaded.engine.tokenizer
        raw = tokenizer.token_bytes(token)
        try:
            return raw.decode() or tokenizer.decode([token], keep_special=True)
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
