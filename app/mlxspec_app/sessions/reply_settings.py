"""The settings of the next reply: what the user gave, else what suits the model, else a chat.

The library and `mlxspec generate` are greedy where nothing is said. A chat is sampled: by what the
authors of the model recommend, or by values that suit most chat models. Whatever the user gives, by
a flag, in the settings file or by a slash word, stays as it is, whichever model is loaded.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from mlxspec.params import GenerationParams
from mlxspec.params.table import ADJUSTABLE, adjustable, adjusted

CHAT_DEFAULTS: Mapping[str, float] = {"temperature": 0.7, "top_p": 0.9}
"""Sampling params of a chat with a model that recommends none, by name."""

OWN = "the model's own"
USUAL = "usual in chats"
_WORDS = {row.name: row.word for row in ADJUSTABLE.values()}
_TEMPLATE = "template"
_STOPS_REPEATS = "stop_repeats"


class ReplySettings:
    """Settings of a reply with their origin; one thread adjusts them, another one may suggest."""

    def __init__(self, params: GenerationParams, given: Collection[str]) -> None:
        """Begin with the defaults of a chat.

        Args:
            params: The settings that the user gave, with the library's defaults for the others.
            given: Slash words of those that the user gave.
        """
        self._params = params
        self._given = frozenset(given)
        self._suggested: Mapping[str, float] = {}
        self._switches: tuple[str, ...] = ()

    def suggest(self, sampling: Mapping[str, float], switches: Collection[str] = ()) -> None:
        """Follow another model.

        Args:
            sampling: The sampling params that it recommends, by name, for those not given.
            switches: The variables that its chat template reads.
        """
        self._suggested, self._switches = dict(sampling), tuple(switches)

    @property
    def params(self) -> GenerationParams:
        """The settings of the next reply."""
        params, open_ones = self._params, self._open()
        sampling: dict[str, Any] = {n: v for n, v in open_ones.items() if n != _STOPS_REPEATS}
        params = replace(params, sampling=replace(params.sampling, **sampling))
        return replace(params, stop_repeats=True) if _STOPS_REPEATS in open_ones else params

    def adjust(self, word: str, text: str) -> None:
        """Give a setting, by its slash word; "" returns to the default of the chat.

        Raises:
            ValueError: There is no such setting, or it cannot have this value.
        """
        usual = adjustable(GenerationParams()).get(word, "")
        self._params = adjusted(self._params, word, text or usual)
        self._given = self._given | {word} if text else self._given - {word}

    def adjustable(self) -> dict[str, str]:
        """Return the settings of the next reply as text, by slash word."""
        return adjustable(self.params)

    def origins(self) -> dict[str, str]:
        """Return where the sampling params come from that the user did not give, by slash word.

        Of the chat template, what it reads.
        """
        origin = OWN if self._suggested else USUAL
        origins = {_WORDS[name]: origin for name in self._open() if name != _STOPS_REPEATS}
        if self._switches and _TEMPLATE not in self._given:
            origins[_TEMPLATE] = f"none; the model's template reads {', '.join(self._switches)}"
        return origins

    def _open(self) -> dict[str, float]:
        """Return the defaults of the chat that no given setting replaces, by name."""
        defaults = {**(self._suggested or CHAT_DEFAULTS), _STOPS_REPEATS: True}
        return {name: value for name, value in defaults.items() if _WORDS[name] not in self._given}
