"""The keys that the user chose: which are usable, and what is wrong with the others.

A key can have one meaning on a screen, so keys are compared among the bindings of one screen. An
action whose chosen key is not usable keeps its default key.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from textual.binding import Binding
from textual.keys import key_to_character

from mlxspec_app.settings.keys.chat import CHAT, FIND, TRANSCRIPT
from mlxspec_app.settings.keys.chats import HISTORY
from mlxspec_app.settings.keys.models import MODELS
from mlxspec_app.settings.keys.recordings import RACE, REPLAY, WATCH

_SCREENS: dict[str, tuple[Binding, ...]] = {
    "chat": (*CHAT, *TRANSCRIPT),
    "search of a chat": FIND,
    "chats": HISTORY,
    "models": MODELS,
    "replay": REPLAY,
    "race": RACE,
    "watch": WATCH,
}
_OF_PROMPT = ("enter", "tab", "up", "down", "left", "right", "backspace", "delete", "space")


@dataclass(frozen=True)
class KeyChoices:
    """The result of checking the chosen keys.

    Attributes:
        keys: The usable ones, by the id of their binding.
        troubles: What is wrong with the others, one sentence each.
    """

    keys: dict[str, str]
    troubles: tuple[str, ...] = ()


def all_bindings() -> dict[str, Binding]:
    """Return every binding that can have another key, by its id."""
    bindings = (binding for table in _SCREENS.values() for binding in table)
    return {binding.id: binding for binding in bindings if binding.id is not None}


def usable_keys(chosen: Mapping[str, str]) -> KeyChoices:
    """Return which of the chosen keys are usable; of two that clash, the first wins.

    `chosen` holds keys separated by commas, by the id of a binding.
    """
    known = all_bindings()
    keys: dict[str, str] = {}
    troubles = []
    for name, wanted in chosen.items():
        if name not in known:
            troubles.append(f"keys: {name} is not the id of an action; F5 lists them")
            continue
        typed = [key for key in wanted.split(",") if _is_for_typing(name, key)]
        if typed:
            troubles.append(f"keys: {name} cannot be {typed[0]}, which the prompt needs")
            continue
        keys[name] = wanted
    while (clash := _find_clash(keys)) is not None:
        troubles.append(clash.describe(known[clash.name].key))
        del keys[clash.name]
    return KeyChoices(keys, tuple(troubles))


@dataclass(frozen=True)
class _Clash:
    """A chosen key that another action of the screen uses already."""

    name: str
    key: str
    other: str
    screen: str

    def describe(self, usual: str) -> str:
        return (
            f"keys: {self.key} is {self.other} in the {self.screen} already; {self.name} stays "
            f"on {usual}"
        )


def _find_clash(chosen: Mapping[str, str]) -> _Clash | None:
    for screen, table in _SCREENS.items():
        owners: dict[str, str] = {}
        # default keys first: a chosen key must give way to them
        for binding in sorted(table, key=lambda binding: _rank(chosen, binding.id or "")):
            name = binding.id or ""
            for key in chosen.get(name, binding.key).split(","):
                owner = owners.setdefault(key_to_character(key) or key, name)
                if owner != name:
                    return _Clash(name, key, owner, screen)
    return None


def _rank(chosen: Mapping[str, str], name: str) -> int:
    return list(chosen).index(name) + 1 if name in chosen else 0


def _is_for_typing(name: str, key: str) -> bool:
    """Return whether the chat's prompt needs a key for typing."""
    character = key_to_character(key)
    is_of_prompt = key in _OF_PROMPT or (character is not None and character.isprintable())
    return is_of_prompt and name in {binding.id for binding in CHAT}
