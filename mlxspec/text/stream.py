"""Streamed tokens to text: characters split over tokens, and stop strings.

Text that may go on, into a character or a stop string, is held back, so released text never
changes. A special token has no text, but a stop string may name it: during the search it is a
placeholder character, which is removed from released text.
"""

import codecs
from collections.abc import Callable, Mapping, Sequence

_SIGNS = range(0xD800, 0xE000)  # halves of surrogate pairs, which decoded text never holds


class TextStream:
    """Turns token ids into text, token by token."""

    def __init__(
        self,
        token_bytes: Callable[[int], bytes],
        stop: Sequence[str] = (),
        special: Mapping[str, int] | None = None,
    ) -> None:
        """Start a reply; `special` are the tokens without bytes, which stop strings may name."""
        if any(not string for string in stop):
            raise ValueError("a stop string is empty; leave it out instead")
        self._token_bytes = token_bytes
        named = [name for name in special or {} if any(name in string for string in stop)]
        named.sort(key=len, reverse=True)  # the longest wins, as in a tokenizer
        signs = dict(zip(named, map(chr, _SIGNS), strict=False))
        self._signs = {special[name]: sign for name, sign in signs.items()} if special else {}
        self._hidden = dict.fromkeys(map(ord, signs.values()))
        self._ends = {form: string for string in stop for form in (_signed(string, signs), string)}
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.ended_by = ""  # the stop string that was found; it and all after it is dropped

    def push(self, token: int) -> str:
        """Return the text that `token` completes."""
        new = self._decoder.decode(self._token_bytes(token)) + self._signs.get(token, "")
        return self._release(new).translate(self._hidden)

    def finish(self) -> str:
        """Return the text that is still held back; an incomplete character becomes U+FFFD."""
        text = self._release(self._decoder.decode(b"", final=True)) + self._held
        self._held = ""
        return text.translate(self._hidden)

    def _release(self, new: str) -> str:
        if self.ended_by:
            return ""
        text = self._held + new
        found = [(at, end) for end in self._ends if (at := text.find(end)) >= 0]
        if found:
            at, end = min(found)
            self.ended_by, self._held = self._ends[end], ""
            return text[:at]
        keep = max((overlap(text, end) for end in self._ends), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _signed(string: str, signs: Mapping[str, str]) -> str:
    """Return a stop string with placeholders instead of the names of special tokens."""
    for name, sign in signs.items():
        string = string.replace(name, sign)
    return string


def overlap(text: str, string: str) -> int:
    """Return the length of the longest suffix of `text` that is a prefix of `string`."""
    longest = min(len(text), len(string) - 1)  # the whole string would have been found
    return next((n for n in range(longest, 0, -1) if text.endswith(string[:n])), 0)
