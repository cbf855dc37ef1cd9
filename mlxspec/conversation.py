"""A chat with one engine: the template, the turns, and the cache kept from turn to turn.

The tokens of earlier turns are never encoded again: what the model emitted stays as it was
emitted, and only the text that the chat template adds after it is encoded. So the next prompt
begins with exactly what the cache holds, and a turn costs only its own tokens.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from mlxspec.engine import Engine
from mlxspec.errors import MlxspecError, UnsupportedOperationError
from mlxspec.events import (
    DraftVerified,
    Event,
    GenerationFinished,
    PlainDecoded,
    TurnStarted,
)
from mlxspec.proof import Proof
from mlxspec.proving import Progress, prove
from mlxspec.reply import GenerationParams


@dataclass
class _Exchange:
    """One user turn and the reply to it, with the tokens they are made of."""

    user: str
    prompt: list[int]
    prompt_text: str
    params: GenerationParams
    reply: str = ""
    tokens: list[int] = field(default_factory=list)


class Conversation:
    """Turns of a chat, each answered by the engine.

    Attributes:
        engine: Does the work; one conversation at a time should use it.
        system: System prompt, or None for what the model's chat template does by itself.
    """

    def __init__(self, engine: Engine, system: str | None = None) -> None:
        """Start an empty chat.

        Raises:
            UnsupportedOperationError: The model has no chat template.
        """
        if not engine.tokenizer.has_chat_template:
            raise UnsupportedOperationError(
                f"{engine.name or 'the model'} has no chat template, so it cannot chat: use an "
                "instruct model, or generate from a plain prompt"
            )
        self.engine = engine
        self.system = system
        self._exchanges: list[_Exchange] = []

    @property
    def messages(self) -> list[dict[str, str]]:
        """The turns so far, as chat templates take them."""
        messages = [{"role": "system", "content": self.system}] if self.system is not None else []
        for exchange in self._exchanges:
            messages.append({"role": "user", "content": exchange.user})
            messages.append({"role": "assistant", "content": exchange.reply})
        return messages

    def reset(self) -> None:
        """Forget all turns; the system prompt stays."""
        self._exchanges.clear()

    def reply(
        self,
        text: str,
        params: GenerationParams | None = None,
        *,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[Event]:
        """Answer a user turn; what a stopped reply said stays part of the chat.

        Args:
            text: What the user says.
            params: Settings.
            should_stop: Asked once a round.

        Raises:
            ContextLengthError: The chat no longer fits the model's context; nothing is added.
        """
        exchange = self._next_exchange(text, params or GenerationParams())
        events = self.engine.generate(exchange.prompt, exchange.params, should_stop=should_stop)
        self._exchanges.append(exchange)
        return self._follow(exchange, events)

    def regenerate(
        self,
        params: GenerationParams | None = None,
        *,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[Event]:
        """Answer the last user turn again, in place of the last reply.

        Raises:
            ValueError: There is no turn to answer.
        """
        if not self._exchanges:
            raise ValueError("there is no turn to answer again: say something first")
        last = self._exchanges.pop()
        try:
            return self.reply(last.user, params, should_stop=should_stop)
        except (ValueError, MlxspecError):
            self._exchanges.append(last)  # a refused call costs no turn
            raise

    def prove(
        self,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        on_progress: Progress = lambda done, total: None,
    ) -> Proof:
        """Decode the last reply once more without drafts and compare; see `proving.prove`.

        Raises:
            ValueError: There is no reply, or it was sampled.
        """
        if not self._exchanges:
            raise ValueError("there is no reply to verify: say something first")
        last = self._exchanges[-1]
        return prove(
            self.engine,
            last.prompt,
            last.tokens,
            last.params,
            should_stop=should_stop,
            on_progress=on_progress,
        )

    def _follow(self, exchange: _Exchange, events: Iterator[Event]) -> Iterator[Event]:
        yield TurnStarted("user", exchange.user)
        for event in events:
            match event:
                case DraftVerified() | PlainDecoded():
                    for token in event.emit:
                        exchange.tokens.append(token.token)
                        exchange.reply += token.text
                case GenerationFinished():
                    exchange.reply += event.text
            yield event

    def _next_exchange(self, text: str, params: GenerationParams) -> _Exchange:
        tokenizer = self.engine.tokenizer
        messages = [*self.messages, {"role": "user", "content": text}]
        full = tokenizer.render_chat(messages)
        if self._exchanges:
            last = self._exchanges[-1]
            known = last.prompt_text + tokenizer.decode(last.tokens, keep_special=True)
            if full.startswith(known):
                added = tokenizer.encode(full[len(known) :], add_special_tokens=False)
                return _Exchange(text, [*last.prompt, *last.tokens, *added], full, params)
        return _Exchange(text, tokenizer.encode(full, add_special_tokens=False), full, params)
