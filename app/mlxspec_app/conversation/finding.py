"""Finds words in the messages of a conversation, where they are drawn."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from mlxspec_app.conversation.messages import Message
from mlxspec_app.text.safe_text import safe_text


class Hit(NamedTuple):
    """A place of the words.

    Attributes:
        message: The message.
        line: Index of the line in its drawn text.
        start: Index of the first character in the line.
        end: Index behind the last one.
    """

    message: Message
    line: int
    start: int
    end: int


def find_words(messages: Iterable[Message], words: str) -> list[Hit]:
    """Return the places of the words, oldest first; capitals make no difference."""
    if not words.strip():
        return []
    pattern = re.compile(re.escape(words), re.IGNORECASE)
    return [
        Hit(message, number, *found.span())
        for message in messages
        for number, line in enumerate(safe_text(message.text).split("\n"))
        for found in pattern.finditer(line)
    ]
