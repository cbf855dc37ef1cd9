"""Keys as people write them, and lists of their actions for footer, help and manual."""

from collections.abc import Mapping

from textual.binding import Binding
from textual.keys import key_to_character


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
