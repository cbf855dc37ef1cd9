"""The settings file: TOML that both people and the app edit; the app preserves the comments.

A wrong value affects one setting only: the setting gets its default, and a notice reports the value
and the allowed ones. Entries that this version does not define stay in the file.
"""

import tomllib
from collections.abc import Collection, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mlxspec.errors import MlxspecError
from mlxspec.text_files import read_text
from mlxspec_app.conversation.inks import INKS
from mlxspec_app.conversation.views import DEFAULT_VIEW
from mlxspec_app.settings.rules import (
    KEY_LIST,
    KEYS,
    SAMPLING,
    ContextPolicy,
    Value,
    checked,
    rules,
)
from mlxspec_app.user.files import make_private_folder, replace_file

_HEADER = "# Settings of mlxspec. Anything not set has its default.\n"


class SettingsError(MlxspecError):
    """The settings file cannot be changed as requested."""


@dataclass(frozen=True)
class Settings:
    """The settings in the file; their rules say what they mean.

    `theme` and `model` are "" for the default ones. `sampling` lacks params that have their
    default. `keys` has the keys of an action, separated by commas, by the id of its binding.
    """

    theme: str = ""
    ink: str = INKS[0].name
    view: str = DEFAULT_VIEW.name
    frame_rate: int = 0
    reduced_motion: bool = False
    ascii_glyphs: bool = False
    context_full: ContextPolicy = "ask"
    model: str = ""
    drafter: str = "auto"
    learn: bool = True
    sampling: dict[str, Value] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)


class SettingsRead(NamedTuple):
    """The settings of a file, wrong values replaced by defaults, and a sentence on each problem."""

    settings: Settings
    notices: tuple[str, ...] = ()


def read_settings(
    path: Path, *, themes: Collection[str] = (), key_ids: Collection[str] = ()
) -> SettingsRead:
    """Return the content of the file; a missing or wrong file gives defaults, not an error.

    Empty `themes` or `key_ids` allow every theme or every id of a binding.
    """
    try:
        entries = _flat(tomllib.loads(read_text(path)))
    except FileNotFoundError:
        return SettingsRead(Settings())
    except OSError as error:
        reason = error.strerror or error
        return SettingsRead(Settings(), (f"{path} cannot be read: {reason}; defaults are used",))
    except (ValueError, RecursionError) as error:
        return SettingsRead(Settings(), (f"{path} is not TOML: {error}; defaults are used",))
    allowed = rules(themes)
    values: dict[str, Value] = {}
    notices = []
    for name, value in entries.items():
        table, _, rest = name.partition(".")
        is_key = table == KEYS and rest and (rest in key_ids or not key_ids)
        rule = KEY_LIST if is_key else allowed.get(name)
        if rule is None:
            notices.append(f"{path.name}: {name} is not a setting of this version")
            continue
        try:
            values[name] = rule.read(value)
        except ValueError as error:
            notices.append(f"{path.name}: {name} {error}; its default is used")
    return SettingsRead(_settings(values), tuple(notices))


def change_settings(
    path: Path, changes: Mapping[str, Value | None], *, themes: Collection[str] = ()
) -> None:
    """Write some settings into the file, which is created with its folder if missing.

    Everything else in it stays, comments included. `changes` holds values by dotted name, such as
    "ink", "sampling.top_p" or "keys.chat.stop"; None removes a setting. Empty `themes` allow every
    name.

    Raises:
        SettingsError: A value is not allowed, or the file cannot be read or written. The file is
            unchanged then.
    """
    import tomlkit  # late: only a change of a setting needs it
    from tomlkit.exceptions import TOMLKitError

    try:
        values = {name: checked(name, value, themes) for name, value in changes.items()}
    except ValueError as error:
        raise SettingsError(str(error)) from error
    try:
        source = read_text(path) if path.exists() else _HEADER
        document = tomlkit.parse(source)
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


def _settings(values: Mapping[str, Any]) -> Settings:
    tables: dict[str, Any] = {SAMPLING: {}, KEYS: {}}
    for name, value in values.items():
        table, _, rest = name.partition(".")
        if rest:
            tables[table][rest] = value
        else:
            tables[name] = value
    return Settings(**tables)


def _set_entry(document: MutableMapping[str, Any], name: str, value: Value | None) -> None:
    """Set or remove an entry; an entry in two spellings is in the file twice."""
    while name in _flat(document):
        table, key = _find_entry(document, name)
        if value is not None:
            table[key] = value
            if _flat(document)[name] == value:
                return
        del table[key]  # else another spelling further down overrides it
    if value is not None:
        table, key = _find_entry(document, name)
        table[key] = value


def _find_entry(
    table: MutableMapping[str, Any], name: str, is_root: bool = True
) -> tuple[MutableMapping[str, Any], str]:
    """Return the table that holds a dotted name, and its key there.

    Finds both spellings: `chat.stop = "x"`, which TOML reads as nested tables, and
    `"chat.stop" = "x"`.
    """
    head, dot, rest = name.partition(".")
    if not dot or name in table:
        return table, name
    if is_root and not isinstance(table.get(head), MutableMapping):
        table[head] = {}
    if isinstance(table.get(head), MutableMapping):
        return _find_entry(table[head], rest, is_root=False)
    return table, name
