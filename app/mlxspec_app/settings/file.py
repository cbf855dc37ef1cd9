"""The settings file: TOML that both people and the app edit; the app preserves the comments.

A wrong value affects one setting only: the setting gets its default, and a notice reports the value
and the allowed ones. Entries that this version does not define stay in the file.
"""

import tomllib
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from mlxspec.errors import MlxspecError
from mlxspec.files import read_text
from mlxspec_app.conversation.views import CALM, INKS
from mlxspec_app.settings.rules import (
    DEFAULTS,
    KEYS,
    SAMPLING,
    ContextPolicy,
    Value,
    checked,
    rule_of,
)
from mlxspec_app.user.files import make_private_folder, replace_file

_OLD_VIEW = ("view", "colours")  # of the versions that had three views
_HEADER = "# Settings of mlxspec. Anything not set has its default.\n"


class SettingsError(MlxspecError):
    """The settings file cannot be changed as requested."""


@dataclass(frozen=True)
class Settings:
    """The settings in the file; their rules say what they mean."""

    theme: str = ""  # "" for the default one
    ink: str = INKS[0].name
    view: str = CALM.name
    frame_rate: int = 0
    reduced_motion: bool = False
    ascii_glyphs: bool = False
    context_full: ContextPolicy = "ask"
    model: str = ""  # "" for the default one
    drafter: str = "auto"
    learn: bool = True
    sampling: dict[str, Value] = field(default_factory=dict)  # without those that are not set
    keys: dict[str, str] = field(default_factory=dict)  # by the id of a binding, "ctrl+t,f9"


def value_of(settings: Settings, name: str) -> Value | None:
    """Return the value of a setting by dotted name; None for a key that the user did not choose."""
    table, _, rest = name.partition(".")
    if table == KEYS:
        return settings.keys.get(rest)
    if table == SAMPLING:
        return settings.sampling.get(rest, DEFAULTS[name])
    value: Value = getattr(settings, name)
    return value


def with_value(settings: Settings, name: str, value: Value | None) -> Settings:
    """Return the settings with one of them changed, as `checked` allows; None sets its default."""
    value = checked(name, value)
    table, _, rest = name.partition(".")
    if table in (KEYS, SAMPLING):
        chosen = {key: held for key, held in getattr(settings, table).items() if key != rest}
        chosen |= {} if value is None else {rest: value}
        return replace(settings, **{table: chosen})  # type: ignore[arg-type]
    value = value_of(Settings(), name) if value is None else value
    return replace(settings, **{name: value})  # type: ignore[arg-type]  # the rule has checked the type


class SettingsRead(NamedTuple):
    """The settings of a file, wrong values replaced by defaults, and a sentence on each problem."""

    settings: Settings
    notices: tuple[str, ...] = ()


def read_settings(path: Path) -> SettingsRead:
    """Return the content of the file; a missing or wrong file gives defaults, not an error."""
    try:
        entries = _flat(tomllib.loads(read_text(path)))
    except FileNotFoundError:
        return SettingsRead(Settings())
    except OSError as error:
        reason = error.strerror or error
        return SettingsRead(Settings(), (f"{path} cannot be read: {reason}; defaults are used",))
    except (ValueError, RecursionError) as error:
        return SettingsRead(Settings(), (f"{path} is not TOML: {error}; defaults are used",))
    settings, notices = Settings(), []
    for name, value in entries.items():
        try:
            rule_of(name)
        except ValueError:
            notices.append(f"{path.name}: {name} is not a setting of this version")
            continue
        try:
            settings = with_value(settings, name, None if (name, value) == _OLD_VIEW else value)
        except ValueError as error:
            notices.append(f"{path.name}: {error}; its default is used")
    return SettingsRead(settings, tuple(notices))


def change_settings(path: Path, changes: Mapping[str, Value | None]) -> None:
    """Write some settings into the file, which is created with its folder if missing.

    Everything else in it stays, comments included. `changes` holds values by dotted name, such as
    "ink", "sampling.top_p" or "keys.chat.stop"; None removes a setting. If a value is not allowed,
    or the file cannot be read or written, this raises `SettingsError` and the file is unchanged.
    """
    import tomlkit  # late: only a change of a setting needs it
    from tomlkit.exceptions import TOMLKitError

    try:
        values = {name: checked(name, value) for name, value in changes.items()}
    except ValueError as error:
        raise SettingsError(str(error)) from error
    try:
        document = tomlkit.parse(read_text(path) if path.exists() else _HEADER)
        for name, value in values.items():
            _set_entry(document, name, value)
        make_private_folder(path.resolve().parent)
        replace_file(path, tomlkit.dumps(document).encode())
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror or error}") from error
    except (TOMLKitError, ValueError, RecursionError) as error:
        raise SettingsError(
            f"{path} is not TOML, so nothing was changed: {error}. Fix or remove it"
        ) from error


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the entries of nested tables by dotted name."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def _set_entry(document: MutableMapping[str, Any], name: str, value: Value | None) -> None:
    """Set or remove an entry; of several spellings in the file one is left."""
    places = list(_places(document, name))
    if value is not None and not places:
        head, dot, rest = name.partition(".")
        if dot and not isinstance(document.get(head), MutableMapping):
            document[head] = {}
        places = [(document[head], rest) if dot else (document, name)]
    for table, key in places[value is not None :]:
        del table[key]
    if value is not None:
        table, key = places[0]
        table[key] = value


def _places(
    table: MutableMapping[str, Any], name: str
) -> Iterator[tuple[MutableMapping[str, Any], str]]:
    """Yield the tables that hold a dotted name, with its key there.

    Finds every spelling: `chat.stop = "x"`, which TOML reads as nested tables, and
    `"chat.stop" = "x"`.
    """
    if name in table:
        yield table, name
    head, dot, rest = name.partition(".")
    if dot and isinstance(table.get(head), MutableMapping):
        yield from _places(table[head], rest)
