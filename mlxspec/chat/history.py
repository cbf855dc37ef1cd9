"""The turns of a chat, and the prompt of the next one.

The tokens of earlier turns are never encoded again: emitted tokens do not change, and only the text
that the chat template adds after them is encoded. So the next prompt starts with exactly the tokens
in the cache, and a turn prefills only its own tokens.

A template may render earlier turns differently: most templates of reasoning models leave out the
reasoning of replies before the last message. Then the chat is encoded again, and the cache goes
back to the prefix that both texts share.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from mlxspec.chat.prompts import ChatPrompts, content_of, messages_of
from mlxspec.engine.engine import Engine
from mlxspec.errors import UnsupportedOperationError, warn
from mlxspec.params import GenerationParams, checks
from mlxspec.text.chat_template import Message, Tools
from mlxspec.text.tokenizer import Tokenizer
from mlxspec.trace.reply_text import ReplyText


@dataclass(eq=False)
class Exchange:
    """One turn of a chat and its reply, with their tokens; a restored turn has only its text.

    A prompt that continues an earlier exchange stores only its new tokens. So a chat of many turns
    stores each token once, not once for each later turn; a template that rewrites earlier turns
    costs a new prompt for each.
    """

    asked: list[Message]  # the messages that are answered: one of the user, or results of tools
    before: "Exchange | None" = None  # whose prompt and reply start this prompt
    added: list[int] = field(default_factory=list)  # after those; empty in a restored turn
    added_text: str = ""  # of these tokens
    params: GenerationParams = field(default_factory=GenerationParams)
    first: int = 0  # index of the first turn that is in the prompt
    tokens: list[int] = field(default_factory=list)
    num_kept: int = 0  # how many of the first reply tokens were given, not written
    said: ReplyText = field(default_factory=ReplyText)

    @property
    def reply(self) -> str:
        """Text of the reply, including its reasoning."""
        return self.said.text

    @property
    def is_restored(self) -> bool:
        """Whether it was written in another session: its prompt and settings are not known."""
        return bool(self.reply) and not self.added

    @property
    def prompt(self) -> list[int]:
        """Tokens before the reply."""
        earlier = (part for one in self._line()[:-1] for part in (one.added, one.tokens))
        return [*chain.from_iterable(earlier), *self.added]

    def _line(self) -> "list[Exchange]":
        """Return the exchanges that make up the prompt, this one last."""
        found = [self]
        while (before := found[-1].before) is not None:
            found.append(before)
        return found[::-1]

    def whole_text(self, tokenizer: Tokenizer) -> str:
        """Return the text of all tokens of the prompt and the reply."""
        return "".join(
            one.added_text + tokenizer.decode(one.tokens, keep_special=True) for one in self._line()
        )


class History:
    """The turns of a chat, and the prompt of the next one."""

    def __init__(
        self,
        engine: Engine,
        system: str | None = None,
        *,
        tools: Tools = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        """Start an empty chat.

        Args:
            engine: Writes the replies; its context limits the prompts.
            system: System prompt, or None for the default of the chat template. A template without
                a role for it gets it before the first message.
            tools: JSON schemas of functions, as in `ChatTemplate.render`.
            say: Called with one line for the user, such as an argument that the chat template
                ignores; None makes it a Python warning.

        Raises:
            ValueError: The system prompt is no text.
            UnsupportedOperationError: The model has no chat template.
        """
        if not engine.tokenizer.has_chat_template:
            raise UnsupportedOperationError(
                f"{engine.name or 'the model'} has no chat template, so it cannot chat: use an "
                "instruct model, or generate from a plain prompt"
            )
        self.engine = engine
        self.system = None if system is None else checks.text("system", system)
        self.tools = tools
        # Whether a prompt leaves out the oldest turns when the chat no longer fits the model's
        # context; else a turn that does not fit is refused.
        self.forgets_oldest = False
        self._say = say or warn
        self._prompts = ChatPrompts(engine.tokenizer, engine.name, self._say)
        self._exchanges: list[Exchange] = []

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The turns so far, in the form that chat templates need."""
        return self._messages_of(self._exchanges)

    @property
    def turns(self) -> list[tuple[str, str]]:
        """Pairs of user text and reply, oldest first."""
        return [("\n".join(map(content_of, one.asked)), one.reply) for one in self._exchanges]

    @property
    def reply_tokens(self) -> list[list[int]]:
        """Token ids of each reply, [] if only its text is known; `restore` takes them."""
        return [list(exchange.tokens) for exchange in self._exchanges]

    @property
    def num_forgotten(self) -> int:
        """Number of turns that the last prompt left out because they no longer fit."""
        return self._exchanges[-1].first if self._exchanges else 0

    def reset(self) -> None:
        """Forget all turns; the system prompt stays."""
        self._exchanges = []

    def restore(
        self,
        turns: Iterable[tuple[str, str]],
        system: str | None = None,
        tokens: Sequence[Sequence[int]] = (),
    ) -> None:
        """Replace the chat by an earlier one; the next turn encodes its text again.

        Args:
            turns: Pairs of user text and reply, oldest first.
            system: Its system prompt.
            tokens: Token ids of each reply, if they are known, for `alternatives` and `branch`.
                Those that do not spell the reply, such as ids of another model, are dropped.

        Raises:
            ValueError: A turn is no pair of texts; the chat does not change.
        """
        pairs = [checks.texts("a turn", turn, may_be_empty=True) for turn in turns]
        if any(len(pair) != 2 for pair in pairs):
            raise ValueError("a turn must be a pair of texts: the user's, and the reply")
        self.system = None if system is None else checks.text("system", system)
        known = [*tokens[: len(pairs)], *[()] * (len(pairs) - len(tokens))]
        self._exchanges = [
            Exchange(
                messages_of(user),
                tokens=self._spelling(text, ids),
                said=self._prompts.split(text),
            )
            for (user, text), ids in zip(pairs, known, strict=True)
        ]

    def cut(self, num_turns: int) -> None:
        self._exchanges = self._exchanges[: checks.whole("num_turns", num_turns)]

    def _written(self, turn: int, position: int) -> Exchange:
        """Return a turn whose reply has a token at a position; raise ValueError otherwise."""
        one = self._known(turn)
        if not 0 <= checks.whole("position", position) < len(one.tokens):
            raise ValueError(f"there is no token {position}; the reply has {len(one.tokens)}")
        return one

    def _known(self, turn: int) -> Exchange:
        """Return a turn whose reply is known by its tokens; raise ValueError otherwise."""
        if not 0 <= checks.whole("turn", turn) < len(self._exchanges):
            raise ValueError(f"there is no turn {turn}; the chat has {len(self._exchanges)}")
        one = self._exchanges[turn]
        if one.reply and not one.tokens:
            raise ValueError(
                "this reply was written in another session or with another model, and only its "
                "text is known, not its tokens: write it again first"
            )
        return one

    def _spelling(self, text: str, tokens: Sequence[int]) -> list[int]:
        """Return the tokens of a stored reply, or [] if they do not spell its text."""
        if not all(0 <= token < self.engine.target.vocab_size for token in tokens):
            return []
        spelt = b"".join(map(self.engine.tokenizer.token_bytes, tokens)).decode("utf-8", "replace")
        return list(tokens) if spelt.startswith(text) else []

    def _next_exchange(
        self, earlier: Sequence[Exchange], asked: list[Message], params: GenerationParams
    ) -> Exchange:
        """Return the exchange of a new turn; its prompt leaves out turns that no longer fit."""
        first = earlier[-1].first if earlier else 0
        exchange = self._exchange_from(earlier, first, asked, params)
        while self.forgets_oldest and first < len(earlier) and self._is_crowded(exchange):
            first += 1
            exchange = self._exchange_from(earlier, first, asked, params)
        return exchange

    def _exchange_from(
        self,
        earlier: Sequence[Exchange],
        first: int,
        asked: list[Message],
        params: GenerationParams,
    ) -> Exchange:
        encode = self.engine.tokenizer.encode
        messages = [*self._messages_of(earlier[first:]), *asked]
        args = self._prompts.template_args(params)
        full = self._prompts.render(messages, self.tools, args)
        if earlier and not earlier[-1].is_restored:
            last = earlier[-1]
            known = last.whole_text(self.engine.tokenizer)
            # A template may rewrite earlier turns; then the whole chat is encoded again below.
            if full.startswith(known):
                new = full[len(known) :]
                added = encode(new, add_special_tokens=False)
                return Exchange(asked, last, added, new, params, first)
        return Exchange(asked, None, encode(full, add_special_tokens=False), full, params, first)

    def fits_alone(self, text: str) -> bool:
        """Return whether a message would fit the context in a chat without earlier turns."""
        length = self.engine.context_length
        alone = self._exchange_from([], 0, messages_of(text), GenerationParams())
        return length is None or len(alone.prompt) <= length

    def _is_crowded(self, exchange: Exchange) -> bool:
        """Return whether a prompt leaves too little of the context for the reply."""
        length = self.engine.context_length
        if length is None:
            return False
        # A quarter of the context is enough for a reply, even if max_tokens is larger.
        return len(exchange.prompt) + min(exchange.params.max_tokens, length // 4) > length

    def _messages_of(self, exchanges: Iterable[Exchange]) -> list[dict[str, Any]]:
        messages = [] if self.system is None else [{"role": "system", "content": self.system}]
        for exchange in exchanges:
            messages += [dict(message) for message in exchange.asked]
            messages.append(self._prompts.reply_message(exchange.said, exchange.added_text))
        return messages
