"""A chat with one engine: chat template, turns, and a cache that is reused from turn to turn.

The tokens of earlier turns are never encoded again: emitted tokens do not change, and only the text
that the chat template adds after them is encoded. So the next prompt starts with exactly the tokens
in the cache, and a turn prefills only its own tokens.

A template may render earlier turns differently: most templates of reasoning models leave out the
reasoning of replies before the last message. Then the chat is encoded again, and the cache goes
back to the prefix that both texts share.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from mlxspec.budget import CostCurve
from mlxspec.budget.cost import idle_cost_curve
from mlxspec.chat.exchange import Exchange
from mlxspec.chat.prompts import ChatPrompts, content_of, messages_of
from mlxspec.device.turns import device_turn
from mlxspec.drafters.base import Drafter, fresh_drafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.engine.engine import Engine
from mlxspec.errors import StaleReplyError, UnsupportedOperationError
from mlxspec.measure.alternatives import DEFAULT_NUM_ALTERNATIVES, alternatives
from mlxspec.measure.lossless import prove
from mlxspec.params import GenerationParams, checks
from mlxspec.progress import Progress
from mlxspec.reply.continuation import StopWhen, never
from mlxspec.text.chat_template import Message
from mlxspec.trace.alternatives import Alternative
from mlxspec.trace.events import Event, TokensKept, TurnStarted
from mlxspec.trace.proof import Proof


class Conversation:
    """Turns of a chat, each answered by the engine.

    Attributes:
        engine: Writes the replies. If conversations use it in turn, each prefills its text again.
        system: System prompt, or None for the default of the chat template. A template without a
            role for it gets it before the first message.
        tools: JSON schemas of the functions that the model may call, or None.
        forgets_oldest: Whether a prompt leaves out the oldest turns when the chat no longer fits
            the model's context; else a turn that does not fit is refused.
    """

    def __init__(
        self,
        engine: Engine,
        system: str | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        """Start an empty chat.

        Args:
            engine: Writes the replies.
            system: System prompt.
            tools: JSON schemas of functions, as in `Tokenizer.apply_chat_template`.
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
        self.forgets_oldest = False
        self._prompts = ChatPrompts(engine.tokenizer, engine.name, say)
        self._exchanges: list[Exchange] = []

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The turns so far, in the form that chat templates need."""
        return self._messages_of(self._exchanges)

    @property
    def turns(self) -> list[tuple[str, str]]:
        """Pairs of user text and reply, oldest first."""
        return [(exchange.user, exchange.reply) for exchange in self._exchanges]

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
        """Keep the first turns and forget the others; raise ValueError if it is not an integer."""
        self._exchanges = self._exchanges[: checks.whole("num_turns", num_turns)]

    def reply(
        self,
        text: str | Message | Sequence[Message],
        params: GenerationParams | None = None,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        stop_when: StopWhen = never,
    ) -> Iterator[Event]:
        """Answer a user turn; the text of a stopped reply stays in the chat.

        The turn is part of the chat from its first event on.

        Args:
            text: Text of the user; or a message, or several, such as results with the role "tool".
            params: Settings; None for the defaults.
            should_stop: Called once per round; True cancels the reply.
            stop_when: Called with every token; see `Engine.generate`.

        Raises:
            ValueError: An argument is of the wrong type; nothing is added.
            ContextLengthError: The chat no longer fits the model's context; nothing is added.
            StaleReplyError: Raised by the iterator: the chat has continued without this reply.
        """
        return self._ask(self._exchanges, messages_of(text), params, should_stop, stop_when)

    def regenerate(
        self,
        params: GenerationParams | None = None,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        stop_when: StopWhen = never,
    ) -> Iterator[Event]:
        """Answer the last user turn again; the new reply replaces the last one.

        Raises:
            ValueError: There is no turn to answer.
        """
        if not self._exchanges:
            raise ValueError("there is no message to answer again: send one first")
        *earlier, last = self._exchanges
        return self._ask(earlier, last.asked, params, should_stop, stop_when)

    def branch(
        self,
        turn: int,
        position: int,
        token: int,
        params: GenerationParams | None = None,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        stop_when: StopWhen = never,
    ) -> Iterator[Event]:
        """Answer a turn again, with the start of its reply and then another token.

        The turns after it are forgotten. The text after the token is drawn from the target's
        distribution after the prompt, the kept tokens and this token; a token that ends the text
        ends the reply. With the seed of the reply, its own token at that position gives the same
        reply again.

        Args:
            turn: Index of the turn in `turns`.
            position: Index among the tokens of the reply; earlier tokens are kept.
            token: Token id for that position, such as one of `alternatives`.
            params: Settings; `max_tokens` counts the kept tokens too.
            should_stop: Called once per round; True cancels the reply.
            stop_when: Called with every token, kept ones too; see `Engine.generate`.

        Raises:
            ValueError: There is no such position or token, the reply was restored as text, or the
                grammar of `params` forbids a token; the chat does not change.
            ContextLengthError: Prompt and kept tokens no longer fit; the chat does not change.
            StaleReplyError: Raised by the iterator: the chat has continued without this reply.
        """
        one = self._written(turn, position)
        kept = [*one.tokens[:position], checks.whole("token", token)]
        earlier = self._exchanges[:turn]
        return self._ask(earlier, one.asked, params, should_stop, stop_when, kept)

    def prove(
        self,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        on_progress: Progress = lambda done, total: None,
    ) -> Proof:
        """Decode the last reply once more without drafts and compare; see `measure/prove.py`.

        Raises:
            ValueError: There is no reply, or it was sampled.
        """
        if not self._exchanges:
            raise ValueError("there is no reply to verify: send a message first")
        last = self._exchanges[-1]
        if last.is_restored:
            raise ValueError(
                "this reply was written in another session, and its settings are not stored: write "
                "it again to compare"
            )
        return prove(
            self.engine,
            last.prompt,
            last.tokens,
            last.params,
            num_kept=last.num_kept,
            should_stop=should_stop,
            on_progress=on_progress,
        )

    def alternatives(
        self, turn: int, position: int, *, k: int = DEFAULT_NUM_ALTERNATIVES
    ) -> list[Alternative]:
        """Return the most probable tokens at a position of a reply; see `measure/alternatives.py`.

        Args:
            turn: Index of the turn in `turns`.
            position: Index of the token among the tokens of the reply.
            k: Number of tokens; the written one is added if it is not among them.

        Raises:
            ValueError: There is no such token, or the reply was restored as text.
        """
        one = self._written(turn, position)
        before, written = one.tokens[:position], one.tokens[position]
        find = partial(alternatives, self.engine, k=k, written=written)
        if not one.is_restored:
            return find(one.prompt, before, one.params)
        anew = self._next_exchange(self._exchanges[:turn], one.asked, one.params)
        return [replace(each, prob=None) for each in find(anew.prompt, before, one.params)]

    def _written(self, turn: int, position: int) -> Exchange:
        """Return a turn whose reply has a token at a position; raise ValueError otherwise."""
        if not 0 <= checks.whole("turn", turn) < len(self._exchanges):
            raise ValueError(f"there is no turn {turn}; the chat has {len(self._exchanges)}")
        one = self._exchanges[turn]
        if one.reply and not one.tokens:
            raise ValueError(
                "this reply was written in another session or with another model, and only its "
                "text is known: write it again to see what else was possible"
            )
        if not 0 <= checks.whole("position", position) < len(one.tokens):
            raise ValueError(f"there is no token {position}; the reply has {len(one.tokens)}")
        return one

    def _spelling(self, text: str, tokens: Sequence[int]) -> list[int]:
        """Return the tokens of a stored reply, or [] if they do not spell its text."""
        if not all(0 <= token < self.engine.target.vocab_size for token in tokens):
            return []
        spelt = b"".join(map(self.engine.tokenizer.token_bytes, tokens)).decode("utf-8", "replace")
        return list(tokens) if spelt.startswith(text) else []

    def race(
        self,
        text: str = "",
        params: GenerationParams | None = None,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        on_run: Callable[[str], None] = lambda name: None,
    ) -> tuple[list[Event], list[Event]]:
        """Answer a turn twice, plainly and then with drafts; the chat does not change.

        Args:
            text: Text of the user; "" for the last turn again.
            params: Settings of both replies.
            should_stop: Called once per round; True cancels both replies.
            on_run: Called with the name of the drafter before each reply.

        Returns:
            The events of both replies, each after the turn that it answers.

        Raises:
            ValueError: There is no turn to answer.
            ContextLengthError: The chat no longer fits the model's context.
        """
        if not text and not self._exchanges:
            raise ValueError("there is no prompt to race with: send a message first, or give one")
        earlier = self._exchanges if text else self._exchanges[:-1]
        asked = messages_of(text) if text else self._exchanges[-1].asked
        exchange = self._next_exchange(earlier, asked, _settings(params))
        turns = [TurnStarted(str(one["role"]), content_of(one)) for one in asked]

        def run(drafter: Drafter, settings: GenerationParams) -> list[Event]:
            events = self.engine.generate(
                exchange.prompt, settings, drafter=drafter, should_stop=should_stop
            )
            return [*turns, *events]

        # The prompt is read before both runs, so that neither includes its time.
        run(NoDrafter(), replace(exchange.params, max_tokens=1))
        runs = []
        for drafter in (NoDrafter(), self._unlearned_drafter()):
            on_run(drafter.name)
            runs.append(run(drafter, exchange.params))
        return runs[0], runs[1]

    def _unlearned_drafter(self) -> Drafter:
        """Return a drafter that has not seen a reply to the same prompt, if one can be made."""
        try:
            return fresh_drafter(self.engine.drafter)
        except ValueError:  # a head or a draft model, which learns nothing from replies
            return self.engine.drafter

    def measure_cost(self, *, should_stop: Callable[[], bool] = lambda: False) -> CostCurve | None:
        """Time forwards after the text in the cache; the cache does not change.

        Args:
            should_stop: Called before each forward; True ends the measurement.

        Returns:
            Milliseconds of a forward by its number of rows, or None if it was stopped.
        """
        target = self.engine.target
        with device_turn():
            curve = idle_cost_curve(target, should_stop)
        if curve is not None:
            self.engine.budget.record(len(target), curve)
        return curve

    def _ask(
        self,
        earlier: Sequence[Exchange],
        asked: list[Message],
        params: GenerationParams | None,
        should_stop: Callable[[], bool],
        stop_when: StopWhen,
        kept: Sequence[int] = (),
    ) -> Iterator[Event]:
        """Start a turn after `earlier`; from its first event on, these are the chat's exchanges."""
        exchange = self._next_exchange(earlier, asked, _settings(params))
        events = self.engine.generate(
            exchange.prompt,
            exchange.params,
            kept=kept,
            should_stop=should_stop,
            stop_when=stop_when,
        )
        seen = [(one, len(one.pieces)) for one in self._exchanges]
        return self._follow([*earlier, exchange], events, seen)

    def _follow(
        self,
        exchanges: list[Exchange],
        events: Iterator[Event],
        seen: Sequence[tuple[Exchange, int]],
    ) -> Iterator[Event]:
        """Yield the events of the last exchange, and store its reply.

        `exchanges` become those of the chat. `seen` are the exchanges when the prompt was made,
        with the number of pieces of each.
        """
        # The chat may have changed between the call and the first event; then its prompt is
        # outdated.
        self._check_is_current(
            len(self._exchanges) == len(seen)
            and all(
                one is before and len(one.pieces) == count
                for one, (before, count) in zip(self._exchanges, seen, strict=True)
            )
        )
        exchange, self._exchanges = exchanges[-1], exchanges
        for message in exchange.asked:
            yield TurnStarted(str(message["role"]), content_of(message))
        for event in events:
            self._check_is_current(self._exchanges is exchanges)
            exchange.tokens += [token.token for token in getattr(event, "emit", ())]
            if isinstance(event, TokensKept):
                exchange.num_kept = len(event.emit)
            exchange.said.add(event)
            yield event

    def _check_is_current(self, is_current: bool) -> None:
        if not is_current:
            raise StaleReplyError(
                "the chat has gone on, or was changed, since this reply began, so the reply is not "
                "part of the chat: read one reply to its end before the next, or ask again"
            )

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
        full = self._prompts.render(messages, self.tools, params.chat_template_args)
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


def _settings(params: GenerationParams | None) -> GenerationParams:
    return checks.instance(
        "params", GenerationParams() if params is None else params, GenerationParams
    )
