"""Where the reasoning of a reply starts and ends: the marks of the tokenizer, token by token.

A reasoning model writes its thoughts before its answer, between two marks such as <think> and
</think>. A mark is one token, or several of which the first is a control token. Some chat templates
end with the opening mark, so a reply may start inside its reasoning.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from mlxspec.trace.events import Channel

_MARKS = (
    ("<think>", "</think>"),
    ("<longcat_think>", "</longcat_think>"),
    ("<|think:start|>", "<|think:end|>"),
    ("<|channel>thought", "<channel|>"),
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    (
        *("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
        *("<|start|>assistant", "<|end|>"),
    ),
)
"""Opening and closing marks of the models in use, and, if the answer is a separate message, what
begins and what ends a message."""

_CONTROL = re.compile(r"<[^<>]+>")


@dataclass(frozen=True)
class ReasoningMarks:
    """The marks around the reasoning of a model."""

    start: str
    end: str
    borders: Mapping[tuple[int, ...], Channel]  # what starts after each mark, by its tokens
    start_tokens: tuple[int, ...]
    closing: tuple[int, ...]  # all that ends the reasoning and begins the answer

    @classmethod
    def of(
        cls, vocabulary: Mapping[str, int], encode: Callable[[str], Sequence[int]]
    ) -> "ReasoningMarks | None":
        """Return the marks of a tokenizer, None for a model without; `encode` adds no start."""
        for marks in _MARKS:
            if all(part in vocabulary for mark in marks for part in _CONTROL.findall(mark)):
                tokens = [tuple(encode(mark)) for mark in marks]
                borders: dict[tuple[int, ...], Channel] = dict.fromkeys(tokens[1:3], "answer")
                closing = tuple(encode("".join(reversed(marks[1:]))))
                return cls(*marks[:2], {tokens[0]: "reasoning", **borders}, tokens[0], closing)
        return None

    def is_open_after(self, prompt: Sequence[int], token_bytes: Callable[[int], bytes]) -> bool:
        """Return whether a prompt ends with the opening mark; spaces may follow the mark."""
        length = len(prompt)
        # A special token has no bytes: it is not a space, although it is invisible.
        while length and (text := token_bytes(prompt[length - 1])) and not text.strip():
            length -= 1
        width = len(self.start_tokens)
        return tuple(prompt[max(0, length - width) : length]) == self.start_tokens

    def opening_of(self, prompt: str) -> str:
        """Return the opening mark, and the spaces after it, that end a prompt; else ""."""
        is_open = prompt.rstrip().endswith(self.start)
        return prompt[prompt.rindex(self.start) :] if is_open else ""

    def split(self, text: str) -> list[tuple[Channel, str]]:
        """Split a stored reply, of which only the text is known, into pieces."""
        head, end, answer = text.partition(self.end)
        before, start, inside = head.partition(self.start)
        if end and not start:  # the prompt held the opening mark
            before, inside = "", head
        pieces: list[tuple[Channel, str]] = [("answer", before), ("mark", start)]
        pieces += [("reasoning", inside), ("mark", end), ("answer", answer)]
        return [piece for piece in pieces if piece[1]]

    def written(self, pieces: Iterable[tuple[Channel, str]]) -> str:
        """Return the text of a reply with its marks, including marks that are special tokens."""
        parts: list[str] = []
        before: Channel = "answer"
        for channel, group in groupby(pieces, key=itemgetter(0)):
            text = "".join(text for _, text in group)
            if channel == "mark" and self.start not in text and self.end not in text:
                text = self.end if before == "reasoning" else self.start
            parts.append(text)
            before = channel
        return "".join(parts)


class ChannelTracker:
    """Determines the channel of each emitted token of one reply, and when reasoning has to end."""

    def __init__(
        self,
        marks: ReasoningMarks | None,
        prompt: Sequence[int],
        token_bytes: Callable[[int], bytes],
        most: int = -1,
    ) -> None:
        """Start a reply; without marks, every token belongs to the answer.

        `most` is the number of reasoning tokens after which the reasoning ends; -1 for any number.
        """
        self._borders = {} if marks is None else marks.borders
        self._closing = () if marks is None or most < 0 else marks.closing
        self._num_left = most
        self._num_closing = 0  # tokens of `_closing` that the text so far ends with
        is_open = marks is not None and marks.is_open_after(prompt, token_bytes)
        self._channel: Channel = "reasoning" if is_open else "answer"
        self._begun: tuple[int, ...] = ()  # tokens that may become a mark

    @property
    def is_in_answer(self) -> bool:
        """Whether the next token belongs to the answer, unless it starts a mark."""
        return self._channel == "answer" and not self._begun

    @property
    def is_limited(self) -> bool:
        return bool(self._closing)

    @property
    def forced(self) -> int | None:
        """The token that has to follow, once the reasoning tokens are used up; else None."""
        is_due = self._closing and self._channel == "reasoning" and self._num_left <= 0
        return self._closing[self._num_closing] if is_due else None

    def is_free_for(self, count: int) -> bool:
        """Return whether no token is forced now or after any of the next `count` tokens."""
        return not self._closing or self._num_left > count

    def next(self, token: int) -> Channel:
        """Return the channel of the next token; the first tokens of a mark count as a mark.

        The token need not be the forced one: a caller may keep tokens of a longer reasoning.
        """
        if token == self.forced:
            self._begun, self._num_closing = (), self._num_closing + 1
            if self._num_closing == len(self._closing):
                self._num_closing, self._channel = 0, "answer"
            return "mark"
        before, channel = self._channel, self._channel_of(token)
        if self._closing and before == self._channel == "reasoning":
            self._num_left -= 1  # also for a mark that is begun or repeated: the limit is certain
            is_next = token == self._closing[self._num_closing]
            self._num_closing = self._num_closing + 1 if is_next else int(token == self._closing[0])
        else:
            self._num_closing = 0
        return channel

    def _channel_of(self, token: int) -> Channel:
        for begun in ((*self._begun, token), (token,)):
            if begun in self._borders:
                self._begun, self._channel = (), self._borders[begun]
                return "mark"
            if any(mark[: len(begun)] == begun for mark in self._borders):
                self._begun = begun  # it starts with a control token, which belongs to no text
                return "mark"
        self._begun = ()
        return self._channel
