"""Single settings by dotted name: get, change, and convert typed text."""

from collections.abc import Collection
from dataclasses import replace

from mlxspec_app.settings.file import Settings
from mlxspec_app.settings.rules import DEFAULTS, KEYS, SAMPLING, Rule, Value, checked


def value_of(settings: Settings, name: str) -> Value | None:
    """Return the value of a setting; None for a key that the user did not choose."""
    table, _, rest = name.partition(".")
    if table == KEYS:
        return settings.keys.get(rest)
    if table == SAMPLING:
        return settings.sampling.get(rest, DEFAULTS[name])
    value: Value = getattr(settings, name)
    return value


def with_value(
    settings: Settings, name: str, value: Value | None, themes: Collection[str] = ()
) -> Settings:
    """Return the settings with one of them changed, as `checked` allows; None sets its default."""
    value = checked(name, value, themes)
    table, _, rest = name.partition(".")
    if table in (KEYS, SAMPLING):
        chosen = {key: held for key, held in getattr(settings, table).items() if key != rest}
        chosen |= {} if value is None else {rest: value}
        return replace(settings, **{table: chosen})  # type: ignore[arg-type]
    value = value_of(Settings(), name) if value is None else value
    return replace(settings, **{name: value})  # type: ignore[arg-type]  # the rule has checked the type


def read_typed(rule: Rule, text: str) -> Value:
    """Convert typed text to a value of a setting; raises ValueError if it is not allowed."""
    text = text.strip()
    if rule.kind in (int, float):
        try:
            return rule.read(rule.kind(text))
        except (ValueError, OverflowError) as error:
            raise ValueError(f"is {text!r:.60}; allowed is {rule.allowed}") from error
    if rule.kind is bool:
        return rule.read({"true": True, "false": False}.get(text.lower(), text))
    return rule.read(text)
