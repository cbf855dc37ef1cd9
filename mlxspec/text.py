"""Streamed tokens to text: characters split over tokens, and stop strings.

The bytes of a token may end inside a character, and the text so far may end with the start of a
stop string. Such text is held back until a later token completes it, so released text never
changes. The reply is the texts of all tokens and the result of `finish`, joined.
"""

import codecs
from collections.abc import Callable, Sequence


class TextStream:
    """Turns token ids into text, token by token.

    Attributes:
        stopped: True after a stop string was found; it and all text after it is dropped.
    """

    def __init__(self, token_bytes: Callable[[int], bytes], stop: Sequence[str] = ()) -> None:
        """Begin a reply.

        Args:
            token_bytes: Function that returns the UTF-8 bytes of a token, none for a special one.
            stop: Strings that end the reply.

        Raises:
            ValueError: A stop string is empty.
        """
        if any(not string for string in stop):
            raise ValueError("a stop string is empty; leave it out instead")
        self._token_bytes = token_bytes
        self._stop = tuple(stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.stopped = False

    def push(self, token: int) -> str:
        """Return the text that `token` completes."""
        return self._release(self._decoder.decode(self._token_bytes(token)))

    def finish(self) -> str:
        """Return the text that is still held back; an incomplete character becomes U+FFFD."""
        text = self._release(self._decoder.decode(b"", final=True)) + self._held
        self._held = ""
        return text

    def _release(self, new: str) -> str:
        if self.stopped:
            return ""
        text = self._held + new
        found = [at for at in map(text.find, self._stop) if at >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        keep = max((_overlap(text, string) for string in self._stop), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, string: str) -> int:
    """Return the length of the longest suffix of `text` that is a prefix of `string`."""
    longest = min(len(text), len(string) - 1)  # the whole string would have been found
    return next((n for n in range(longest, 0, -1) if text.endswith(string[:n])), 0)
