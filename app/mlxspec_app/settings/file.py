"""The settings file: TOML that people edit and that the app edits too, comments and all.

A value that cannot be used costs that one setting, which keeps its default, and a notice says
what was got and what is allowed. What this version does not know is left in the file as it is.
"""

import tomllib
from collections.abc import Collection, Mapping, MutableMapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from mlxspec.errors import MlxspecError
from mlxspec_app.conversation.inks import INKS
from mlxspec_app.settings.rules import KEY_LIST, SAMPLING, ContextPolicy, Value, rules
from mlxspec_app.user.private import make_private_folder
from mlxspec_app.user.whole_file import replace_file

_HEADER = "# Settings of mlxspec. What is left out has its default.\n"
KEYS = "keys"


class SettingsError(MlxspecError):
    """The settings file cannot be changed as asked."""


@dataclass(frozen=True)
class Settings:
    """What the user chose for good.

    Attributes:
        theme: Name of a theme; "" for the app's own choice.
        ink: Name of the ink that a chat begins with.
        frame_rate: Frames per second; 0 for what suits the connection.
        reduced_motion: Whether nothing moves or blinks.
        ascii_glyphs: Whether only ASCII is drawn around the text.
        context_full: What happens when the context is full.
        model: Model to load; "" for the default model.
        drafter: Drafter to use.
        learn: Whether what its table learns from the chats is kept.
        sampling: How tokens are drawn, by the name of a setting; what is left out has its default.
        keys: Keys of an action by the id of its binding, with commas between several.
    """

    theme: str = ""
    ink: str = INKS[0].name
    frame_rate: int = 0
    reduced_motion: bool = False
    ascii_glyphs: bool = False
    context_full: ContextPolicy = "ask"
    model: str = ""
    drafter: str = "auto"
    learn: bool = True
    sampling: dict[str, Value] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SettingsRead:
    """What a settings file says.

    Attributes:
        settings: The settings, with defaults for all that is missing or wrong.
        notices: What the user should know about the file.
    """

    settings: Settings
    notices: tuple[str, ...] = ()


def read_settings(
    path: Path, *, themes: Collection[str] = (), key_ids: Collection[str] = ()
) -> SettingsRead:
    """Return what the file says; it need not exist, and nothing in it is an error.

    Args:
        path: The settings file.
        themes: The themes there are; without any, every name is allowed.
        key_ids: The ids of the bindings there are; without any, every id is allowed.
    """
    try:
        entries = _flat(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return SettingsRead(Settings())
    except OSError as error:
        reason = error.strerror or error
        return SettingsRead(Settings(), (f"{path} cannot be read: {reason}; defaults are used",))
    except (ValueError, RecursionError) as error:
        return SettingsRead(Settings(), (f"{path} is not TOML: {error}; defaults are used",))
    known = {**rules(themes), **{f"{KEYS}.{name}": KEY_LIST for name in key_ids}}
    values: dict[str, Value] = {}
    notices = []
    for name, value in entries.items():
        rule = known.get(name) or (KEY_LIST if _is_free_key(name, key_ids) else None)
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
    """Write some settings into the file and leave all else in it alone, comments included.

    Args:
        path: The settings file; made with its folder where it is missing.
        changes: Values by dotted name, such as "ink", "sampling.top_p" or "keys.chat.stop"; None
            takes a setting out, so that it has its default.
        themes: The themes there are; without any, every name is allowed.

    Raises:
        SettingsError: A value is not allowed, or the file cannot be read or written; then it is
            as it was.
    """
    import tomlkit  # only those who change a setting wait for it
    from tomlkit.exceptions import TOMLKitError

    checked = {name: _checked(name, value, themes) for name, value in changes.items()}
    try:
        source = path.read_text(encoding="utf-8") if path.exists() else _HEADER
        document = tomlkit.parse(source)
        for name, value in checked.items():
            _put(document, name, value)
        make_private_folder(path.resolve().parent)
        replace_file(path, tomlkit.dumps(document).encode())
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror or error}") from error
    except (TOMLKitError, ValueError, RecursionError) as error:
        raise SettingsError(
            f"{path} is not TOML, so nothing was changed: {error}. Mend or remove it"
        ) from error


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the entries of nested tables under dotted names."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def _is_free_key(name: str, key_ids: Collection[str]) -> bool:
    return not key_ids and name.startswith(f"{KEYS}.")


def _settings(values: Mapping[str, Any]) -> Settings:
    top = {item.name for item in fields(Settings)}
    tables: dict[str, dict[str, Any]] = {SAMPLING: {}, KEYS: {}}
    for name, value in values.items():
        table, _, rest = name.partition(".")
        if rest:
            tables[table][rest] = value
    plain = {name: value for name, value in values.items() if name in top}
    return Settings(**plain, sampling=tables[SAMPLING], keys=tables[KEYS])


def _checked(name: str, value: Value | None, themes: Collection[str]) -> Value | None:
    rule = KEY_LIST if name.startswith(f"{KEYS}.") else rules(themes).get(name)
    if rule is None:
        raise SettingsError(f"{name} is not a setting; known are {', '.join(rules())} and {KEYS}")
    try:
        return None if value is None else rule.read(value)
    except ValueError as error:
        raise SettingsError(f"{name} {error}") from error


def _put(document: MutableMapping[str, Any], name: str, value: Value | None) -> None:
    """Set or remove an entry, where it stands if it does; spelled in two ways, it stands twice."""
    while name in _flat(document):
        table, key = _place(document, name)
        if value is not None:
            table[key] = value
            if _flat(document)[name] == value:
                return
        del table[key]  # or what stands further down would count
    if value is not None:
        table, key = _place(document, name)
        table[key] = value


def _place(
    table: MutableMapping[str, Any], name: str, is_root: bool = True
) -> tuple[MutableMapping[str, Any], str]:
    """Return the table that a dotted name belongs into and its key there.

    People write `chat.stop = "x"` in a table, which makes tables of the parts, as well as
    `"chat.stop" = "x"`; whichever is there is found.
    """
    head, dot, rest = name.partition(".")
    if not dot or name in table:
        return table, name
    if is_root and not isinstance(table.get(head), MutableMapping):
        table[head] = {}
    if isinstance(table.get(head), MutableMapping):
        return _place(table[head], rest, is_root=False)
    return table, name
