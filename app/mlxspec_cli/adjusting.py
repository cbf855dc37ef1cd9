"""Settings of a chat by name, changed while it runs: `/temp 0.7` in the app and in bare lines."""

from dataclasses import replace
from typing import Any, NamedTuple

from mlxspec.params import GenerationParams


class _Setting(NamedTuple):
    """Where a setting is kept, and what it is."""

    field: str
    kind: type[int] | type[float] | type[bool]
    is_of_law: bool


_SWITCH = {"on": True, "off": False}
_NOUNS = {int: "a whole number", float: "a number", bool: "on or off"}
_SETTINGS = {
    "temp": _Setting("temperature", float, True),
    "top_p": _Setting("top_p", float, True),
    "top_k": _Setting("top_k", int, True),
    "min_p": _Setting("min_p", float, True),
    "repetition_penalty": _Setting("repetition_penalty", float, True),
    "presence_penalty": _Setting("presence_penalty", float, True),
    "frequency_penalty": _Setting("frequency_penalty", float, True),
    "seed": _Setting("seed", int, False),
    "exact_seed": _Setting("exact_seed", bool, False),
    "k": _Setting("num_draft_tokens", int, False),
    "max": _Setting("max_tokens", int, False),
}

NAMES = tuple(_SETTINGS)


def adjusted(params: GenerationParams, name: str, text: str) -> GenerationParams:
    """Return the settings with one of them changed.

    Args:
        params: The settings so far.
        name: One of `NAMES`.
        text: The new value, as typed.

    Raises:
        ValueError: There is no such setting, or it cannot have this value.
    """
    if name not in _SETTINGS:
        raise ValueError(f"{name!r} is not a setting; choose from {', '.join(NAMES)}")
    field, kind, is_of_law = _SETTINGS[name]
    try:
        value = _SWITCH[text] if kind is bool else kind(text)
    except (ValueError, KeyError):
        raise ValueError(f"{name} must be {_NOUNS[kind]}; got {text!r}") from None
    change: dict[str, Any] = {field: value}
    if is_of_law:
        return replace(params, law=replace(params.law, **change))
    return replace(params, **change)


def adjustable(params: GenerationParams) -> dict[str, str]:
    """Return the settings that `adjusted` can change, by name."""
    return {name: _written(params, setting) for name, setting in _SETTINGS.items()}


def _written(params: GenerationParams, setting: _Setting) -> str:
    value = getattr(params.law if setting.is_of_law else params, setting.field)
    if setting.kind is bool:
        return next(word for word, meaning in _SWITCH.items() if meaning == value)
    return f"{value:g}" if setting.kind is float else str(value)
