"""The keys that the user chose, and keys as people write them.

A key can have one meaning on a screen, so keys are compared among the bindings of one screen. An
action whose chosen key is not usable keeps its default key.
"""

from collections.abc import Mapping
from typing import NamedTuple

from textual.binding import Binding
from textual.keys import key_to_character

from mlxspec_app.settings.keys.tables import (
    CHAT,
    FIND,
    HISTORY,
    MODELS,
    RACE,
    REPLAY,
    TRANSCRIPT,
    WATCH,
)

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


class KeyChoices(NamedTuple):
    """The usable keys by the id of their binding, and a sentence on each of the others."""

    keys: dict[str, str]
    troubles: tuple[str, ...]


def all_bindings() -> dict[str, Binding]:
    """Return every binding that can have another key, by its id."""
    bindings = (binding for table in _SCREENS.values() for binding in table)
    return {binding.id: binding for binding in bindings if binding.id is not None}


def usable_keys(chosen: Mapping[str, str]) -> KeyChoices:
    """Return which of the chosen keys are usable; of two that clash, the first wins.

    `chosen` holds keys separated by commas, by the id of a binding.
    """
    known, typed_into = all_bindings(), {binding.id for binding in CHAT}
    keys: dict[str, str] = {}
    troubles = []
    for name, wanted in chosen.items():
        needed = [key for key in wanted.split(",") if name in typed_into and _is_for_typing(key)]
        if name not in known:
            troubles.append(f"keys: {name} is not the id of an action; F5 lists them")
        elif needed:
            troubles.append(f"keys: {name} cannot be {needed[0]}, which the prompt needs")
        else:
            keys[name] = wanted
    while (clash := _find_clash(keys)) is not None:
        name, reason = clash
        troubles.append(f"keys: {reason}; {name} stays on {known[name].key}")
        del keys[name]
    return KeyChoices(keys, tuple(troubles))


def _find_clash(chosen: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the id of an action whose chosen key is taken, and which one has it."""
    order = {name: number for number, name in enumerate(chosen)}
    for screen, table in _SCREENS.items():
        owners: dict[str, str] = {}
        # default keys first: a chosen key must give way to them
        for binding in sorted(table, key=lambda binding: order.get(binding.id or "", -1)):
            name = binding.id or ""
            for key in chosen.get(name, binding.key).split(","):
                owner = owners.setdefault(key_to_character(key) or key, name)
                if owner != name:
                    return name, f"{key} is {owner} in the {screen} already"
    return None


def _is_for_typing(key: str) -> bool:
    character = key_to_character(key)
    return key in _OF_PROMPT or (character is not None and character.isprintable())


def key_list(
    bindings: tuple[Binding, ...], keys: Mapping[str, str] | None = None
) -> list[tuple[str, str]]:
    """Return rows of keys and their meaning; keys with the same meaning share a row.

    `keys` are the chosen keys, by the id of a binding; other bindings have their default.
    """
    chosen = keys or {}
    rows: dict[str, list[str]] = {}
    for binding in bindings:
        key = shown_keys(binding, chosen.get(binding.id or "", ""))
        rows.setdefault(binding.tooltip, []).append(key)
    return [(", ".join(shown), does) for does, shown in rows.items()]


def shown_keys(binding: Binding, chosen: str = "") -> str:
    """Return the keys of a binding as people write them; `chosen` replaces them."""
    usual = "" if chosen else binding.key_display
    return usual or ", ".join(key_name(key) for key in (chosen or binding.key).split(","))


def key_name(key: str) -> str:
    """Return a key as people write it, such as Ctrl+R; a single letter keeps its case."""
    character = key_to_character(key)
    if character is not None and character.isprintable() and character != " ":
        return character
    short = {"escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn"}
    return "+".join(short.get(part, part.capitalize()) for part in key.split("+"))
