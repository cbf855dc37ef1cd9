"""A chat with one engine: the template, the turns, and the cache kept from turn to turn.

The tokens of earlier turns are never encoded again: what the model emitted stays as it was
emitted, and only the text that the chat template adds after it is encoded. So the next prompt
begins with exactly what the cache holds, and a turn costs only its own tokens.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from mlxspec.budget import CostCurve
from mlxspec.budget.cost import idle_cost_curve
from mlxspec.device.turns import device_turn
from mlxspec.engine.engine import Engine
from mlxspec.errors import StaleReplyError, UnsupportedOperationError
from mlxspec.measure.prove import Progress, prove
from mlxspec.params import GenerationParams, checks
from mlxspec.reply.continuation import StopWhen, never
from mlxspec.trace.events import DraftVerified, Event, GenerationFinished, PlainDecoded, TurnStarted
from mlxspec.trace.proof import Proof


@dataclass
class _Exchange:
    """One user turn and the reply to it, with the tokens they are made of, where these are known.

    A prompt that goes on from an earlier exchange holds only what is new: a chat of many turns
    takes memory for each token once, not for each turn after it.

    Attributes:
        user: What the user said.
        before: The exchange whose prompt and reply the prompt begins with; None where it begins
            with nothing.
        added: Tokens of the prompt after those; none in a turn of an earlier chat.
        added_text: The text they encode.
        params: Settings of the reply.
        first: Place of the turn that the prompt begins with.
        tokens: Tokens of the reply.
        pieces: Its text.
    """

    user: str
    before: "_Exchange | None" = None
    added: list[int] = field(default_factory=list)
    added_text: str = ""
    params: GenerationParams = field(default_factory=GenerationParams)
    first: int = 0
    tokens: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    @property
    def reply(self) -> str:
        """Text of the reply."""
        return "".join(self.pieces)

    @property
    def prompt(self) -> list[int]:
        """Tokens before the reply."""
        earlier = (part for one in self.line[:-1] for part in (one.added, one.tokens))
        return [*chain.from_iterable(earlier), *self.added]

    @property
    def line(self) -> "list[_Exchange]":
        """The exchanges that the prompt is made of, this one last."""
        found: list[_Exchange] = []
        one: _Exchange | None = self
        while one is not None:
            found.append(one)
            one = one.before
        return found[::-1]


class Conversation:
    """Turns of a chat, each answered by the engine.

    Attributes:
        engine: Does the work; where several conversations use it in turn, each reads its text anew.
        system: System prompt, or None for what the model's chat template does by itself.
        forgets_oldest: Whether the oldest turns are left out when the chat no longer fits the
            model's context; else a turn that does not fit is refused.
    """

    def __init__(self, engine: Engine, system: str | None = None) -> None:
        """Start an empty chat.

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
        self.forgets_oldest = False
        self._exchanges: list[_Exchange] = []

    @property
    def messages(self) -> list[dict[str, str]]:
        """The turns so far, as chat templates take them."""
        return self._messages_of(self._exchanges)

    @property
    def turns(self) -> list[tuple[str, str]]:
        """What the user said and what was answered, oldest first."""
        return [(exchange.user, exchange.reply) for exchange in self._exchanges]

    @property
    def num_forgotten(self) -> int:
        """Turns that were left out of the last prompt, because they no longer fit."""
        return self._exchanges[-1].first if self._exchanges else 0

    def reset(self) -> None:
        """Forget all turns; the system prompt stays."""
        self._exchanges = []

    def restore(self, turns: Iterable[tuple[str, str]], system: str | None = None) -> None:
        """Go on with an earlier chat; its text is encoded anew with the next turn.

        Args:
            turns: What the user said and what was answered, oldest first.
            system: Its system prompt.

        Raises:
            ValueError: They are no texts, in pairs; the chat stays as it is.
        """
        pairs = [checks.texts("a turn", turn, may_be_empty=True) for turn in turns]
        if any(len(pair) != 2 for pair in pairs):
            raise ValueError("a turn has to be a pair: what the user said, and the answer")
        self.system = None if system is None else checks.text("system", system)
        self._exchanges = [_Exchange(user, pieces=[reply]) for user, reply in pairs]

    def cut(self, num_turns: int) -> None:
        """Keep the first turns and forget those after them; raises ValueError for no count."""
        self._exchanges = self._exchanges[: checks.whole("num_turns", num_turns)]

    def reply(
        self,
        text: str,
        params: GenerationParams | None = None,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        stop_when: StopWhen = never,
    ) -> Iterator[Event]:
        """Answer a user turn; what a stopped reply said stays part of the chat.

        The turn is part of it from the first event on.

        Args:
            text: What the user says.
            params: Settings.
            should_stop: Asked once a round.
            stop_when: Asked of every token; see `Engine.generate`.

        Raises:
            ValueError: An argument is of the wrong type; nothing is added.
            ContextLengthError: The chat no longer fits the model's context; nothing is added.
            StaleReplyError: While it is read: the chat has gone on without it.
        """
        return self._ask(self._exchanges, text, params, should_stop, stop_when)

    def regenerate(
        self,
        params: GenerationParams | None = None,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        stop_when: StopWhen = never,
    ) -> Iterator[Event]:
        """Answer the last user turn again, in place of the last reply.

        Raises:
            ValueError: There is no turn to answer.
        """
        if not self._exchanges:
            raise ValueError("there is no turn to answer again: say something first")
        *earlier, last = self._exchanges
        return self._ask(earlier, last.user, params, should_stop, stop_when)

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
            raise ValueError("there is no reply to verify: say something first")
        last = self._exchanges[-1]
        if last.reply and not last.tokens:
            raise ValueError(
                "this reply was written by another session, which kept its text alone: have it "
                "written again to compare"
            )
        return prove(
            self.engine,
            last.prompt,
            last.tokens,
            last.params,
            should_stop=should_stop,
            on_progress=on_progress,
        )

    def measure_cost(self, *, should_stop: Callable[[], bool] = lambda: False) -> CostCurve | None:
        """Time forwards over what the cache holds, which stays as it is.

        Args:
            should_stop: Asked before each forward.

        Returns:
            What a forward costs by its number of rows, or None where it was stopped.
        """
        target = self.engine.target
        with device_turn():
            curve = idle_cost_curve(target, should_stop)
        if curve is not None:
            self.engine.budget.record(len(target), curve)
        return curve

    def _ask(
        self,
        earlier: Sequence[_Exchange],
        text: str,
        params: GenerationParams | None,
        should_stop: Callable[[], bool],
        stop_when: StopWhen,
    ) -> Iterator[Event]:
        """Begin a turn after some exchanges; they are those of the chat from its first event on."""
        exchange = self._next_exchange(earlier, checks.text("text", text), _settings(params))
        events = self.engine.generate(
            exchange.prompt, exchange.params, should_stop=should_stop, stop_when=stop_when
        )
        seen = [(one, len(one.pieces)) for one in self._exchanges]
        return self._follow([*earlier, exchange], events, seen)

    def _follow(
        self,
        exchanges: list[_Exchange],
        events: Iterator[Event],
        seen: Sequence[tuple[_Exchange, int]],
    ) -> Iterator[Event]:
        """Yield the events of the last exchange, and keep what it says.

        Args:
            exchanges: Those of the chat from now on.
            events: Of its reply.
            seen: The exchanges of the chat as its prompt was made, and the pieces of each.
        """
        self._check_is_current(
            len(self._exchanges) == len(seen)
            and all(
                one is before and len(one.pieces) == count
                for one, (before, count) in zip(self._exchanges, seen, strict=True)
            )
        )
        exchange, self._exchanges = exchanges[-1], exchanges
        yield TurnStarted("user", exchange.user)
        for event in events:
            self._check_is_current(self._exchanges is exchanges)
            match event:
                case DraftVerified() | PlainDecoded():
                    for token in event.emit:
                        exchange.tokens.append(token.token)
                        exchange.pieces.append(token.text)
                case GenerationFinished():
                    exchange.pieces.append(event.text)
            yield event

    def _check_is_current(self, is_current: bool) -> None:
        if not is_current:
            raise StaleReplyError(
                "the chat has gone on, or was changed, since this reply began, so it is no part "
                "of the chat: read one reply to its end before the next, or ask again"
            )

    def _next_exchange(
        self, earlier: Sequence[_Exchange], text: str, params: GenerationParams
    ) -> _Exchange:
        """Return the exchange that a turn begins, without the turns that no longer fit."""
        first = earlier[-1].first if earlier else 0
        exchange = self._exchange_from(earlier, first, text, params)
        while self.forgets_oldest and first < len(earlier) and self._is_crowded(exchange):
            first += 1
            exchange = self._exchange_from(earlier, first, text, params)
        return exchange

    def _exchange_from(
        self, earlier: Sequence[_Exchange], first: int, text: str, params: GenerationParams
    ) -> _Exchange:
        tokenizer = self.engine.tokenizer
        messages = [*self._messages_of(earlier[first:]), {"role": "user", "content": text}]
        full = tokenizer.render_chat(messages)
        if earlier:
            last = earlier[-1]
            known = self._text_to(last)
            if full.startswith(known):
                new = full[len(known) :]
                added = tokenizer.encode(new, add_special_tokens=False)
                return _Exchange(text, last, added, new, params, first)
        prompt = tokenizer.encode(full, add_special_tokens=False)
        return _Exchange(text, None, prompt, full, params, first)

    def _text_to(self, exchange: _Exchange) -> str:
        """Return the text that the tokens of an exchange encode, its prompt's and its reply's."""
        decode = self.engine.tokenizer.decode
        parts = [(one.added_text, decode(one.tokens, keep_special=True)) for one in exchange.line]
        return "".join(chain.from_iterable(parts))

    def _is_crowded(self, exchange: _Exchange) -> bool:
        """Whether a prompt leaves little of the context for the reply."""
        length = self.engine.context_length
        if length is None:
            return False
        return len(exchange.prompt) + min(exchange.params.max_tokens, length // 4) > length

    def _messages_of(self, exchanges: Iterable[_Exchange]) -> list[dict[str, str]]:
        messages = [{"role": "system", "content": self.system}] if self.system is not None else []
        for exchange in exchanges:
            messages.append({"role": "user", "content": exchange.user})
            messages.append({"role": "assistant", "content": exchange.reply})
        return messages


def _settings(params: GenerationParams | None) -> GenerationParams:
    return checks.instance(
        "params", GenerationParams() if params is None else params, GenerationParams
    )
