"""The reasoning of a reply, folded to one line with its own figures once the answer starts.

While the model reasons, its text streams as any other. The folded text has one span for each span
of the reply, so tokens keep their numbers: the first span of the reasoning holds the fold line, and
its other spans are empty.
"""

from collections.abc import Iterable
from dataclasses import replace

from mlxspec_app.conversation.messages import Reply, Span


class ReasoningFold:
    """The spans shown of one reply; it follows the reply as spans arrive."""

    def __init__(self) -> None:
        self.shown: list[Span] = []  # one for each span of the reply
        self.has_fold = False  # whether there is reasoning with an answer after it
        self._has_reasoning = self._is_open = self._is_folded = False

    def toggle(self) -> None:
        """Unfold the reasoning, or fold it again; `update` shows it."""
        self._is_open = self._is_folded

    def update(self, reply: Reply) -> bool:
        """Take the spans of the reply, now or earlier; return whether shown ones have changed."""
        if len(reply.spans) < len(self.shown):
            self._has_reasoning = self.has_fold = False
            self._look_at(reply.spans)
            del self.shown[len(reply.spans) :]
        new = reply.spans[len(self.shown) :]
        self._look_at(new)
        before, self._is_folded = self._is_folded, self.has_fold and not self._is_open
        if self._is_folded != before:
            self.shown = self._folded(reply) if self._is_folded else list(reply.spans)
            return True
        self.shown += (_hidden(span) for span in new) if self._is_folded else new
        return False

    def _look_at(self, new: Iterable[Span]) -> None:
        for span in new:
            if span.text.strip():
                self._has_reasoning |= span.channel == "reasoning"
                self.has_fold |= span.channel == "answer" and self._has_reasoning

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
