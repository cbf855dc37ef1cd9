"""The one table of settings, and how slash words change the settings of a chat.

Each row stands at the field that it describes. A test compares the flags, the settings file and its
screen, the slash words and the manual with it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mlxspec.params.generation import GenerationParams
from mlxspec.params.grammar import NO_GRAMMAR
from mlxspec.params.load import MODEL, Options
from mlxspec.params.sampling import SamplingParams
from mlxspec.params.setting import Setting, rows_of
from mlxspec.params.template_args import written

SAMPLING = rows_of(SamplingParams, "sampling.")
GENERATION = rows_of(GenerationParams, "sampling.")
LOAD = (MODEL, *rows_of(Options))

ADJUSTABLE = {row.word: row for row in (*SAMPLING, *GENERATION) if row.word}
"""The settings of a reply that can be changed while a chat runs, by slash word."""

STORED = {row.file: row for row in (*SAMPLING, *GENERATION, *LOAD) if row.file}
"""The settings that the settings file can hold, by dotted name."""

_NOUNS: dict[object, list[str]] = {int: ["a whole number"], float: ["a number"], bool: []}


def adjusted(params: GenerationParams, word: str, text: str) -> GenerationParams:
    """Return the settings with one of them, by its slash word, changed to what a user typed.

    Raises:
        ValueError: There is no such setting, or it cannot have this value.
    """
    if word not in ADJUSTABLE:
        raise ValueError(f"{word!r} is not a setting; choose from {', '.join(ADJUSTABLE)}")
    row = ADJUSTABLE[word]
    now: Any = getattr(params, row.name, None)
    # A line sets one name of several; a JSON object sets them all.
    is_added = isinstance(now, Mapping) and not text.startswith("{")
    value = [written(now), text] if is_added else _typed(row, text)
    if row.typed is not None:
        value = row.typed.check(row.name, value)
    change: dict[str, Any] = {row.name: value}
    if row in SAMPLING:
        return replace(params, sampling=replace(params.sampling, **change))
    return replace(params, **change)


def adjustable(params: GenerationParams) -> dict[str, str]:
    """Return the settings that `adjusted` can change, as text that it accepts, by slash word."""
    return {word: _written(params, row) for word, row in ADJUSTABLE.items()}


def _typed(row: Setting, text: str) -> bool | int | float | str:
    kind, words = row.range.kind, row.range.words
    if kind is str:
        return text
    try:
        if text in words or kind is bool:
            return words[text]
        return int(text) if kind is int else float(text)
    except (ValueError, KeyError):
        allowed = " or ".join([*words, *_NOUNS[kind]])
        raise ValueError(f"{row.word} must be {allowed}; got {text!r}") from None


def _written(params: GenerationParams, row: Setting) -> str:
    value = getattr(params.sampling if row in SAMPLING else params, row.name)
    if word := next((word for word, meaning in row.range.words.items() if meaning == value), ""):
        return word
    if isinstance(value, Mapping):
        return written(value)
    if value is None:
        return NO_GRAMMAR
    return f"{value:g}" if row.range.kind is float else str(value)
