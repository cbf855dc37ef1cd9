"""Finds words in the drawn text of the messages of a conversation."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from mlxspec_app.conversation.messages import Message
from mlxspec_app.text.safe_text import safe_text


class Hit(NamedTuple):
    """A match; `line` is a line of the drawn text of `message`, and `end` follows the match."""

    message: Message
    line: int
    start: int
    end: int


def find_words(messages: Iterable[Message], words: str) -> list[Hit]:
    """Return the matches, oldest first; case is ignored."""
    if not words.strip():
        return []
    pattern = re.compile(re.escape(words), re.IGNORECASE)
    return [
        Hit(message, number, *found.span())
        for message in messages
        for number, line in enumerate(safe_text(message.text).split("\n"))
        for found in pattern.finditer(line)
    ]
