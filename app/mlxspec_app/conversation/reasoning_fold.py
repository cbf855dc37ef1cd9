"""The reasoning of a reply, folded to one line with its own figures once the answer starts.

While the model reasons, its text streams as any other. The folded text has one span for each span
of the reply, so tokens keep their numbers: the first span of the reasoning holds the fold line, and
its other spans are empty.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from mlxspec_app.conversation.messages import Reply, Span


class ReasoningFold:
    """The spans shown of one reply; it follows the reply as spans arrive."""

    def __init__(self) -> None:
        self._is_open = False
        self._is_folded = False
        self._has_reasoning = False
        self._has_answer = False
        self._shown: list[Span] = []

    def toggle(self) -> None:
        """Unfold the reasoning, or fold it again; `update` shows it."""
        self._is_open = self._is_folded

    def update(self, reply: Reply) -> bool:
        """Take the spans of the reply, now or earlier; return whether shown ones have changed."""
        if len(reply.spans) < len(self._shown):
            self._has_reasoning = self._has_answer = False
            self._look_at(reply.spans)
            del self._shown[len(reply.spans) :]
        new = reply.spans[len(self._shown) :]
        self._look_at(new)
        before, self._is_folded = self._is_folded, self.has_fold and not self._is_open
        if self._is_folded != before:
            self._shown = self._folded(reply) if self._is_folded else list(reply.spans)
            return True
        self._shown += (_hidden(span) for span in new) if self._is_folded else new
        return False

    @property
    def shown(self) -> Sequence[Span]:
        """A span for each span of the reply."""
        return self._shown

    @property
    def has_fold(self) -> bool:
        """Whether there is reasoning with an answer after it."""
        return self._has_reasoning and self._has_answer

    def _look_at(self, new: Iterable[Span]) -> None:
        for span in new:
            self._has_reasoning |= span.channel == "reasoning" and bool(span.text.strip())
            if span.channel == "answer" and self._has_reasoning:
                self._has_answer |= bool(span.text.strip())

    def _folded(self, reply: Reply) -> list[Span]:
        shown = [_hidden(span) for span in reply.spans]
        first = next(n for n, span in enumerate(reply.spans) if span.channel != "answer")
        shown[first] = replace(shown[first], text=f"[{fold_words(reply)}]\n\n")
        for number in range(first + 1, len(shown)):
            text = shown[number].text  # an answer starts with empty lines, after the mark
            shown[number] = replace(shown[number], text=text.lstrip("\n"))
            if text.strip("\n"):
                break
        return shown


def fold_words(reply: Reply) -> str:
    """Return the line that stands for the reasoning of a reply: its time and tokens."""
    seconds = reasoning_seconds(reply)
    time = f"thought for {seconds:.1f} s" if seconds else "thought"
    kept = reply.kept.emit if reply.kept is not None else ()
    tokens = reply.stats.reasoning_tokens + sum(token.channel == "reasoning" for token in kept)
    return f"{time}, {tokens} tokens; z shows it"


def reasoning_seconds(reply: Reply) -> float:
    """Return the seconds of the rounds that wrote reasoning or its marks; 0 if not recorded."""
    total, before = 0.0, reply.stats.prefill_s
    for round_ in reply.rounds:
        verdict = round_.verdict
        if any(token.channel != "answer" for token in verdict.emit):
            total += max(0.0, verdict.ts - before)
        before = verdict.ts
    return total


def _hidden(span: Span) -> Span:
    return span if span.channel == "answer" else replace(span, text="")
