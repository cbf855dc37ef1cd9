"""A chat with one engine, whose cache is reused from turn to turn."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from mlxspec.chat.history import Exchange, History
from mlxspec.chat.prompts import content_of, messages_of
from mlxspec.drafters.base import Drafter, fresh_drafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.errors import Progress, StaleReplyError
from mlxspec.kv.prefix_files import NO_CHAT
from mlxspec.loading.exactness import exact_form
from mlxspec.measure.alternatives import DEFAULT_NUM_ALTERNATIVES, alternatives
from mlxspec.measure.lossless import prove
from mlxspec.params import GenerationParams, checks
from mlxspec.reply.continuation import StopWhen, never
from mlxspec.text.chat_template import Message
from mlxspec.trace.difference import Proof
from mlxspec.trace.events import Alternative, Event, TokensKept, TurnStarted


class Conversation(History):
    """Turns of a chat, each answered by the engine; if chats use it in turn, each prefills again.

    `system`, `tools` and `forgets_oldest` may be changed between two turns.
    """

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
        """Answer the last user turn again; the new reply replaces the last one. See `reply`."""
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
            params: Settings; `max_tokens` counts new tokens only.
            should_stop: As in `reply`.
            stop_when: As in `reply`, called with the kept tokens too.

        Raises:
            ValueError: There is no such position or token, the reply was restored as text, or the
                grammar of `params` forbids a token; the chat does not change.
            ContextLengthError: Prompt and kept tokens no longer fit; the chat does not change.
            StaleReplyError: As in `reply`.
        """
        one = self._written(turn, position)
        kept = [*one.tokens[:position], checks.whole("token", token)]
        earlier = self._exchanges[:turn]
        return self._ask(earlier, one.asked, params, should_stop, stop_when, kept)

    def resume(
        self,
        params: GenerationParams | None = None,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        stop_when: StopWhen = never,
    ) -> Iterator[Event]:
        """Go on with the last reply, which its limit or the user ended: all its tokens are kept.

        With its settings and seed, the text is that of one longer reply. The rest is as in
        `branch`.
        """
        if not self._exchanges:
            raise ValueError("there is no reply to continue: send a message first")
        one = self._known(len(self._exchanges) - 1)
        earlier = self._exchanges[:-1]
        return self._ask(earlier, one.asked, params, should_stop, stop_when, list(one.tokens))

    def prove(
        self,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        on_progress: Progress = lambda done, total: None,
    ) -> Proof:
        """Decode the last reply, a greedy one, once more without drafts and compare.

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
        """Return the most probable tokens at a position of a reply.

        `turn` is its index in `turns`, `position` that among its tokens. Of the `k` tokens the
        written one is one more if it is not among them.

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

    def race(
        self,
        text: str = "",
        params: GenerationParams | None = None,
        *,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[tuple[int, Event]]:
        """Answer a turn twice, plainly and then with drafts; the chat does not change.

        It yields the number of the run, 0 or 1, with each event. The turn comes first: `text`, or
        the last turn again for "".

        Raises:
            ValueError: There is no turn to answer.
        """
        if not text and not self._exchanges:
            raise ValueError("there is no prompt to race with: send a message first, or give one")
        earlier = self._exchanges if text else self._exchanges[:-1]
        asked = messages_of(text) if text else self._exchanges[-1].asked
        return self._runs(self._next_exchange(earlier, asked, _settings(params)), should_stop)

    def _runs(
        self, exchange: Exchange, should_stop: Callable[[], bool]
    ) -> Iterator[tuple[int, Event]]:
        for number in (0, 1):
            for one in exchange.asked:
                yield number, TurnStarted(str(one["role"]), content_of(one))
        answer = partial(self.engine.generate, exchange.prompt, should_stop=should_stop)
        # The prompt is read before both runs, so that neither includes its time.
        for _ in answer(replace(exchange.params, max_tokens=1), drafter=NoDrafter()):
            pass
        for number, drafter in enumerate((NoDrafter(), self._unlearned_drafter())):
            for event in answer(exchange.params, drafter=drafter):
                yield number, event

    def _unlearned_drafter(self) -> Drafter:
        """Return a drafter that has not seen a reply to the same prompt, if one can be made."""
        try:
            return fresh_drafter(self.engine.drafter)
        except ValueError:  # a head or a draft model, which learns nothing from replies
            return self.engine.drafter

    def keep_rows(
        self, label: str = NO_CHAT, *, should_stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Write the rows of the chat into files, if the engine has any; see `Engine.keep_rows`."""
        if self._exchanges:
            last = self._exchanges[-1]
            self.engine.keep_rows(
                [*last.prompt, *last.tokens], label=label, should_stop=should_stop
            )

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
        settings = _settings(params)
        settings = replace(settings, max_tokens=len(kept) + settings.max_tokens)
        exchange = self._next_exchange(earlier, asked, settings)
        generate = partial(self.engine.generate, should_stop=should_stop, stop_when=stop_when)
        events = generate(exchange.prompt, exchange.params, kept=kept)
        return self._follow([*earlier, exchange], events, self._state())

    def _follow(
        self,
        exchanges: list[Exchange],
        events: Iterator[Event],
        seen: list[tuple[Exchange, int]],
    ) -> Iterator[Event]:
        """Yield the events of the last exchange, and store its reply.

        `exchanges` become those of the chat; `seen` is its state when the prompt was made.
        """
        # Between the call and the first event the chat may have changed: an outdated prompt.
        self._check_is_current(self._state() == seen)
        exchange, self._exchanges = exchanges[-1], exchanges
        for message in exchange.asked:
            yield TurnStarted(str(message["role"]), content_of(message))
        if exchange.params.exact or self.engine.exact:  # the reply itself would examine in silence
            exact_form(self.engine.target, self._say)
        for event in events:
            self._check_is_current(self._exchanges is exchanges)
            exchange.tokens += [token.token for token in getattr(event, "emit", ())]
            if isinstance(event, TokensKept):
                exchange.num_kept = len(event.emit)
            exchange.said.add(event)
            yield event

    def _state(self) -> list[tuple[Exchange, int]]:
        """Return the exchanges, with the number of pieces of each reply."""
        return [(one, len(one.said.pieces)) for one in self._exchanges]

    def _check_is_current(self, is_current: bool) -> None:
        if not is_current:
            raise StaleReplyError(
                "the chat has gone on, or was changed, since this reply began, so the reply is not "
                "part of the chat: read one reply to its end before the next, or ask again"
            )


def _settings(params: GenerationParams | None) -> GenerationParams:
    return checks.instance(
        "params", GenerationParams() if params is None else params, GenerationParams
    )
