"""Where two greedy texts part, and whether rounding can have decided there."""

from collections.abc import Sequence
from dataclasses import dataclass

from mlxspec.trace.difference import common_length
from tests.campaigns.serving.asking import chat_body, logprobs
from tests.campaigns.serving.process import Served

NEAR = 0.01  # in nats; products of another shape round otherwise


@dataclass(frozen=True)
class Parting:
    """Where two greedy replies to the same request part.

    Attributes:
        num_same: Characters that both begin with.
        gap: Distance of the two likeliest tokens there, in nats.
        texts: Both from there on, shortened.
    """

    num_same: int
    gap: float
    texts: tuple[str, ...]

    @property
    def is_near_tie(self) -> bool:
        return self.gap < NEAR

    @property
    def words(self) -> str:
        kind = "a near tie" if self.is_near_tie else "NOT a near tie"
        return f"{kind}, {self.gap:.4f} nats apart: {' | '.join(map(repr, self.texts))}"


def parting(server: Served, prompt: str, texts: Sequence[str], max_tokens: int) -> Parting:
    """Return where two texts part; a server of ours tells the logprobs of the first one there."""
    num_same = common_length(*texts)
    fields = {"stream": False, "stream_options": None, "logprobs": True, "top_logprobs": 2}
    rows = logprobs(server.url, chat_body(server.model, prompt, max_tokens, **fields))
    return Parting(
        num_same, gap_at(rows, texts[0][:num_same]), tuple(text[num_same:][:30] for text in texts)
    )


def gap_at(rows: Sequence[dict], before: str) -> float:
    """Return the distance of the two likeliest tokens after the beginning of a text, in nats.

    Args:
        rows: What the chat API tells of each token.
        before: The beginning; a token may be a part of one of its characters.
    """
    length, same = 0, len(before.encode())
    for row in rows:
        length += len(row["bytes"])
        if length > same:
            break
    first, second = (top["logprob"] for top in row["top_logprobs"])
    return float(first - second)
