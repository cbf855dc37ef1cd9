"""One turn of a chat and its reply, with their tokens."""

from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from mlxspec.chat.prompts import content_of
from mlxspec.params import GenerationParams
from mlxspec.text.chat_template import Message
from mlxspec.tokenizer import Tokenizer
from mlxspec.trace.reply_text import ReplyText


@dataclass
class Exchange:
    """One turn and its reply, with their tokens; a restored turn has only its text.

    A prompt that continues an earlier exchange stores only its new tokens. So a chat of many turns
    stores each token once, not once for each later turn; a template that rewrites earlier turns
    costs a new prompt for each.

    Attributes:
        asked: The messages that are answered: one of the user, or results of tools.
        before: The exchange whose prompt and reply start this prompt; None for a new prompt.
        added: Tokens of the prompt after those; empty in a restored turn.
        added_text: The text of these tokens.
        first: Index of the first turn that is in the prompt.
        num_kept: How many of the first reply tokens were given, not written.
    """

    asked: list[Message]
    before: "Exchange | None" = None
    added: list[int] = field(default_factory=list)
    added_text: str = ""
    params: GenerationParams = field(default_factory=GenerationParams)
    first: int = 0
    tokens: list[int] = field(default_factory=list)
    num_kept: int = 0
    said: ReplyText = field(default_factory=ReplyText)

    @property
    def user(self) -> str:
        """Text of the messages that are answered."""
        return "\n".join(map(content_of, self.asked))

    @property
    def reply(self) -> str:
        """Text of the reply, including its reasoning."""
        return self.said.text

    @property
    def pieces(self) -> list[Any]:
        """Text of the reply, in pieces."""
        return self.said.pieces

    @property
    def is_restored(self) -> bool:
        """Whether it was written in another session: its prompt and settings are not known."""
        return bool(self.reply) and not self.added

    @property
    def prompt(self) -> list[int]:
        """Tokens before the reply."""
        earlier = (part for one in self.line[:-1] for part in (one.added, one.tokens))
        return [*chain.from_iterable(earlier), *self.added]

    @property
    def line(self) -> "list[Exchange]":
        """The exchanges that make up the prompt, this one last."""
        found: list[Exchange] = []
        one: Exchange | None = self
        while one is not None:
            found.append(one)
            one = one.before
        return found[::-1]

    def whole_text(self, tokenizer: Tokenizer) -> str:
        """Return the text of all tokens of the prompt and the reply."""
        parts = (
            (one.added_text, tokenizer.decode(one.tokens, keep_special=True)) for one in self.line
        )
        return "".join(chain.from_iterable(parts))
