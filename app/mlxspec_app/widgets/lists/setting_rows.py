"""Rows of the settings: name and value under headings, and the description of one setting."""

from collections.abc import Mapping

from textual.binding import Binding
from textual.content import Content
from textual.widgets.option_list import Option

from mlxspec_app.settings.file import Settings, value_of
from mlxspec_app.settings.keys.choices import shown_keys
from mlxspec_app.settings.rules import KEYS, SAMPLING, Rule, Value, sections
from mlxspec_app.text.safe_text import safe_line

_NAME_CELLS = 24
_MUTED = "$spec-muted"
_UNSET = {"theme": "the app's own", "model": "the default model"}


def setting_options(
    settings: Settings, bindings: Mapping[str, Binding], unset: Mapping[str, str]
) -> list[Option]:
    """Return a row for every setting and every key, with a heading above each section.

    `bindings` are by id. `unset` has the values in use of settings that the file does not set, by
    dotted name.
    """
    options: list[Option] = []
    for heading, names in sections().items():
        options.append(_heading(heading, is_first=not options))
        options += [Option(setting_row(settings, name, bindings, unset), name) for name in names]
    options.append(_heading("Keys", is_first=False))
    keys = [f"{KEYS}.{name}" for name in bindings]
    return options + [Option(setting_row(settings, name, bindings, unset), name) for name in keys]


def setting_row(
    settings: Settings, name: str, bindings: Mapping[str, Binding], unset: Mapping[str, str]
) -> Content:
    """Return the row of a setting; a value that the user changed is bold with a star."""
    table, _, rest = name.partition(".")
    shown = _keys(settings, bindings[rest]) if table == KEYS else _shown(settings, name)
    is_usual = value_of(settings, name) == value_of(Settings(), name)
    if table == SAMPLING and (is_usual := rest not in settings.sampling):
        shown = unset.get(name, shown)
    return Content.assemble(
        (f"  {rest or name}".ljust(_NAME_CELLS), "$foreground"),
        (" " if is_usual else "*", "$spec-corrected"),
        (f" {shown}", _MUTED if is_usual else "$foreground bold"),
    )


def detail(rule: Rule, meaning: str, default: str, error: str = "") -> Content:
    """Return the meaning of a setting, and its allowed values or an error."""
    if error:
        second = Content.assemble(
            ("✗ ", "$spec-rejected bold"), (safe_line(error), "$spec-rejected")
        )
    else:
        second = Content.styled(f"{rule.allowed}; default {default}", _MUTED)
    return Content("\n").join([Content.styled(meaning, "$foreground"), second])


def written(value: Value | None) -> str:
    """Return a value as in the settings file, without quotation marks."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(settings: Settings, name: str) -> str:
    value = value_of(settings, name)
    return _UNSET.get(name, '""') if value == "" else safe_line(written(value))


def _keys(settings: Settings, binding: Binding) -> str:
    return shown_keys(binding, settings.keys.get(binding.id or "", ""))


def _heading(text: str, *, is_first: bool) -> Option:
    return Option(
        Content.styled(("" if is_first else "\n") + text, f"{_MUTED} bold"), disabled=True
    )
