"""The protocol of a session: orders go in, and events, all that the app sees of it, come out.

The settings of the next reply come from the user, else from the model's authors, else they suit
most chat models. The library and `mlxspec generate` are greedy by default; a chat is sampled.
Settings from a flag, the settings file or a slash command stay, whichever model is loaded.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from mlxspec.params import GenerationParams
from mlxspec.params.table import ADJUSTABLE, adjustable, adjusted
from mlxspec_app.conversation.events import AnyEvent
from mlxspec_app.conversation.orders import Order
from mlxspec_app.conversation.state import ChatState

CHAT_DEFAULTS: Mapping[str, float] = {"temperature": 0.7, "top_p": 0.9}
"""Sampling params of a chat, by name, for a model that recommends none."""

OWN = "the model's own"
USUAL = "usual in chats"
_WORDS = {row.name: row.word for row in ADJUSTABLE.values()}
_TEMPLATE = "template"
_STOPS_REPEATS = "stop_repeats"


class ReplySettings:
    """Settings of a reply with their origin; one thread adjusts them, another one may suggest."""

    def __init__(self, params: GenerationParams, given: Collection[str]) -> None:
        """Start with chat defaults; `given` are the slash words of settings from the user."""
        self._params = params
        self._given = frozenset(given)
        self._suggested: Mapping[str, float] = {}
        self._switches: tuple[str, ...] = ()

    def suggest(self, sampling: Mapping[str, float], switches: Collection[str] = ()) -> None:
        """Follow the params that another model recommends, where the user gave none.

        `switches` are the variables that its chat template reads.
        """
        self._suggested, self._switches = dict(sampling), tuple(switches)

    @property
    def params(self) -> GenerationParams:
        params, open_ones = self._params, self._open()
        sampling: dict[str, Any] = {n: v for n, v in open_ones.items() if n != _STOPS_REPEATS}
        params = replace(params, sampling=replace(params.sampling, **sampling))
        return replace(params, stop_repeats=True) if _STOPS_REPEATS in open_ones else params

    def adjust(self, word: str, text: str) -> None:
        """Set a value by its slash word, or raise ValueError; "" returns to the chat's default."""
        usual = adjustable(GenerationParams()).get(word, "")
        self._params = adjusted(self._params, word, text or usual)
        self._given = self._given | {word} if text else self._given - {word}

    def adjustable(self) -> dict[str, str]:
        return adjustable(self.params)

    def origins(self) -> dict[str, str]:
        """Return the origin of the sampling params that the user did not set, by slash word.

        For the chat template, the value lists the variables that it reads.
        """
        origin = OWN if self._suggested else USUAL
        origins = {_WORDS[name]: origin for name in self._open() if name != _STOPS_REPEATS}
        if self._switches and _TEMPLATE not in self._given:
            origins[_TEMPLATE] = f"none; the model's template reads {', '.join(self._switches)}"
        return origins

    def _open(self) -> dict[str, float]:
        """Return the chat defaults that no given setting replaces, by name."""
        defaults = {**(self._suggested or CHAT_DEFAULTS), _STOPS_REPEATS: True}
        return {name: value for name, value in defaults.items() if _WORDS[name] not in self._given}


class Session(Protocol):
    """A conversation that the app can drive. No method blocks, except `close`."""

    @property
    def busy(self) -> bool:
        """Whether an order is running or waiting."""

    @property
    def settings(self) -> ReplySettings | None:
        """The settings of the next reply; None for a recording, which has none."""

    def start(self) -> None:
        """Start to load; `SessionReady` or `SessionFailed` follows."""

    def send(self, order: Order) -> None:
        """Carry out an order after those before it."""

    def notify(self, message: str) -> None:
        """Send a notice as an event; safe from any thread."""

    def drain(self) -> Sequence[AnyEvent | ChatState]:
        """Return the events since the last call, oldest first.

        A state among them replaces the one on the screen: a recording was moved back.
        """

    def close(self) -> None:
        """Stop, free the model and wait until that is done; safe to call twice."""
