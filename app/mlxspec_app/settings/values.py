"""Single settings by dotted name: get, change, and convert typed text."""

from collections.abc import Collection
from dataclasses import replace

from mlxspec_app.settings.file import KEYS, Settings
from mlxspec_app.settings.rules import DEFAULTS, KEY_LIST, SAMPLING, Rule, Value, rules


def rule_of(name: str, themes: Collection[str] = ()) -> Rule:
    """Return the rule of a setting by dotted name, such as "sampling.top_p" or "keys.chat.stop".

    Empty `themes` allow every name.

    Raises:
        ValueError: There is no such setting.
    """
    rule = KEY_LIST if name.startswith(f"{KEYS}.") else rules(themes).get(name)
    if rule is None:
        raise ValueError(f"{name} is not a setting; known are {', '.join(rules())} and {KEYS}")
    return rule


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
    """Return the settings with one of them changed; None sets its default.

    Raises:
        ValueError: There is no such setting, or it cannot have this value.
    """
    rule = rule_of(name, themes)
    if value is not None:
        try:
            value = rule.read(value)
        except ValueError as error:
            raise ValueError(f"{name} {error}") from error
    table, _, rest = name.partition(".")
    if table in (KEYS, SAMPLING):
        chosen = {key: held for key, held in getattr(settings, table).items() if key != rest}
        chosen |= {} if value is None else {rest: value}
        return replace(settings, **{table: chosen})  # type: ignore[arg-type]
    value = value_of(Settings(), name) if value is None else value
    return replace(settings, **{name: value})  # type: ignore[arg-type]  # the rule has checked the type


def read_typed(rule: Rule, text: str) -> Value:
    """Convert typed text to a value of a setting.

    Raises:
        ValueError: The value is not allowed.
    """
    text = text.strip()
    if rule.kind in (int, float):
        try:
            return rule.read(rule.kind(text))
        except (ValueError, OverflowError) as error:
            raise ValueError(f"is {text!r:.60}; allowed is {rule.allowed}") from error
    if rule.kind is bool:
        return rule.read({"true": True, "false": False}.get(text.lower(), text))
    return rule.read(text)
