"""Tokens to text, as they come: characters split over tokens, and stop strings.

A token's bytes may end inside a character, and a stop string may begin at the end of what is
known. Both are held back and released by the token that settles them, so that text once released
is never taken back. The texts of all tokens, joined with what `finish` returns, are the reply.
"""

import codecs
from collections.abc import Callable, Sequence


class TextStream:
    """Turns token ids into released text.

    Attributes:
        stopped: True once a stop string was found; it and all that follows is dropped.
    """

    def __init__(self, token_bytes: Callable[[int], bytes], stop: Sequence[str] = ()) -> None:
        """Start a reply.

        Args:
            token_bytes: Gives the UTF-8 bytes a token stands for, none for a special token.
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
        """Return the text that `token` releases."""
        return self._release(self._decoder.decode(self._token_bytes(token)))

    def finish(self) -> str:
        """Return what was still held back; an incomplete character shows as U+FFFD."""
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
    """Return the length of the longest end of `text` with which `string` begins."""
    longest = min(len(text), len(string) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(string[:n])), 0)
