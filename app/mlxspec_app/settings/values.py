"""Single settings by their dotted name: what they are, other values for them, and typed ones."""

from collections.abc import Collection
from dataclasses import asdict, replace

from mlxspec_app.settings.file import KEYS, SAMPLING, Sampling, Settings
from mlxspec_app.settings.rules import KEY_LIST, Rule, Value, rules


def rule_of(name: str, themes: Collection[str] = ()) -> Rule:
    """Return what a setting may be.

    Args:
        name: Its dotted name, such as "ink", "sampling.top_p" or "keys.chat.stop".
        themes: The themes there are; without any, every name is allowed.

    Raises:
        ValueError: There is no such setting.
    """
    rule = KEY_LIST if name.startswith(f"{KEYS}.") else rules(themes).get(name)
    if rule is None:
        raise ValueError(f"{name} is not a setting; known are {', '.join(rules())} and {KEYS}")
    return rule


def value_of(settings: Settings, name: str) -> Value | None:
    """Return the value of a setting; None for a key that was not chosen."""
    table, _, rest = name.partition(".")
    if table == KEYS:
        return settings.keys.get(rest)
    values = asdict(settings.sampling) if table == SAMPLING else asdict(settings)
    value: Value = values[rest or name]
    return value


def with_value(
    settings: Settings, name: str, value: Value | None, themes: Collection[str] = ()
) -> Settings:
    """Return the settings with one of them changed; None gives it its default.

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
    if table == KEYS:
        keys = {key: chosen for key, chosen in settings.keys.items() if key != rest}
        return replace(settings, keys=keys if value is None else {**keys, rest: str(value)})
    value = value_of(Settings(), name) if value is None else value
    if table == SAMPLING:
        return replace(settings, sampling=Sampling(**{**asdict(settings.sampling), rest: value}))
    return replace(settings, **{name: value})  # type: ignore[arg-type]  # the rule keeps its type


def read_typed(rule: Rule, text: str) -> Value:
    """Return the value that was typed for a setting.

    Raises:
        ValueError: It is not allowed.
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
