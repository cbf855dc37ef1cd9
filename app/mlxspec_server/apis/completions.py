"""OpenAI's older completions of plain text: `/v1/completions`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mlxspec.params import GenerationParams
from mlxspec_server.apis.base import Lines, OpenAICompletions, ends_of, event, finite, reason_of
from mlxspec_server.asking import MOST_LOGPROBS, ask_of
from mlxspec_server.body import Body
from mlxspec_server.pieces import Piece, TokenLogprob


class Completion(OpenAICompletions):
    """A request for completions: reasoning and answer are one text."""

    kind, chunk = "cmpl", "text_completion"

    def __init__(self, body: Body, defaults: GenerationParams) -> None:
        num_logprobs, prompt = None, body.get("prompt")
        if "logprobs" in body and body.get("logprobs") is not False:
            num_logprobs = body.whole("logprobs", 0, 0, MOST_LOGPROBS)
        is_list = isinstance(prompt, list) and all(isinstance(one, str | list) for one in prompt)
        prompts = prompt if is_list and prompt else [prompt]  # not yet checked
        ask = ask_of(body, defaults, num_logprobs=num_logprobs, prompts=prompts)
        ask = replace(ask, num_replies=ask.num_replies * len(prompts))
        super().__init__(ask, tells_usage=body.part("stream_options").is_on("include_usage"))
        self._lengths: dict[int, int] = {}  # characters sent of each reply

    def tell(self, piece: Piece) -> Lines:
        is_end = piece.kind == "end"
        self._ends += [piece] if is_end else []
        reason = reason_of(piece) if is_end else None
        choice = {"index": piece.index, "text": piece.text, "finish_reason": reason}
        choice["logprobs"] = self._logprobs([piece])
        return [event(self.head(self.chunk, choices=[choice]))]

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        choices = []
        for end in ends_of(pieces):
            own = [piece for piece in pieces if piece.index == end.index]
            choice = {"index": end.index, "text": "".join(piece.text for piece in own)}
            choice |= {"finish_reason": reason_of(end), "logprobs": self._logprobs(own)}
            choices.append(choice)
        return self.head(self.chunk, choices=choices) | self.figures(pieces)

    def _logprobs(self, pieces: Sequence[Piece]) -> dict[str, Any] | None:
        if self.ask.num_logprobs is None:
            return None
        rows: list[TokenLogprob] = []
        offsets: list[int] = []
        token_bytes = self.writing.loaded.engine.tokenizer.token_bytes
        for piece in pieces:
            start = self._lengths.get(piece.index, 0)
            self._lengths[piece.index] = start + len(piece.text)
            before = ""
            for row in piece.logprobs:
                offsets.append(start + min(len(before), len(piece.text)))
                before += token_bytes(row.token).decode("utf-8", "replace")
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
        tokenizer = self.writing.loaded.engine.tokenizer
        raw = tokenizer.token_bytes(token)
        try:
            return raw.decode() or tokenizer.decode([token], keep_special=True)
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
