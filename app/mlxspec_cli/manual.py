"""The manual: keys, commands, settings and flags, from the program's own tables."""

import argparse
from collections.abc import Iterable, Iterator, Sequence

from mlxspec.params.setting import Setting
from mlxspec.params.table import GENERATION, LOAD, SAMPLING
from mlxspec_app.commands import COMMANDS
from mlxspec_app.settings.file import Settings, value_of
from mlxspec_app.settings.keys import tables
from mlxspec_app.settings.keys.choices import key_list
from mlxspec_app.settings.rules import RULES
from mlxspec_cli.parser import commands_of

_DOORS = {"flag": "flag", "word": "slash word", "file": "place in the settings file"}
_HEAD = """\
# Manual

`mlxspec man --markdown` writes this page. The guide, `docs/guide.md`, says it in longer words."""
_SETTINGS = """\
## Settings

One setting has one row. Python has them all: those of a reply in `GenerationParams`, with how
tokens are drawn in its `sampling`, and those of `load` as its arguments. A flag of `mlxspec chat`
or `mlxspec generate` comes before the settings file, which a chat alone reads. A slash word changes
a chat from the next reply on."""
_FILE = """\
### The settings file

F5 shows all of it, keys included, and changes it; so does an editor, for it is TOML. What is left
out has its default."""
_FLAGS = """\
## Commands of the shell

Every command takes `--help`, and `--debug` to show the traceback of an error."""


def manual(parser: argparse.ArgumentParser) -> str:
    """Return the page of a program as Markdown."""
    settings = (*SAMPLING, *GENERATION, *LOAD)
    head = ("in Python", "flag", "in the chat", "in the file", "default", "what it may be")
    parts = [
        _HEAD,
        "## Keys",
        *_keys(),
        "## Commands of the chat",
        _table(("command", "what it does"), _command_rows()),
        _SETTINGS,
        _table((*head, "what it does"), _setting_rows(settings)),
        "Some settings lack one of these ways, for a reason.",
        _table(("setting", "has no", "because"), _reasons(settings)),
        _FILE,
        _table(("name", "default", "allowed", "what it does"), _file_rows()),
        _FLAGS,
        *_programs(parser),
    ]
    return "\n\n".join(parts)


def _keys() -> Iterator[str]:
    chat = [
        *tables.PROMPT_KEYS,
        *key_list((*tables.CHAT, *tables.FIND, *tables.TRANSCRIPT, *tables.HISTORY, *tables.LIST)),
    ]
    known = set(chat)
    screens = {
        "in the list of models, besides": tuple(b for b in tables.MODELS if b.tooltip),
        "in a replay, besides": tables.REPLAY,
        "in a race, besides": tables.RACE,
        "while a server is watched, besides": tables.WATCH,
    }
    yield _table(("key", "in the chat"), ((_code(key), does) for key, does in chat))
    for title, bindings in screens.items():
        rows = [row for row in key_list(bindings) if row not in known]
        known |= set(rows)
        yield _table(("key", title), ((_code(key), does) for key, does in rows))


def _command_rows() -> Iterator[tuple[str, str]]:
    for command in COMMANDS:
        names = ", ".join(f"`/{alias}`" for alias in command.aliases)
        yield _code(command.usage), command.meaning + (f" (also {names})" if names else "")


def _setting_rows(settings: Iterable[Setting]) -> Iterator[tuple[str, ...]]:
    for row in settings:
        default = "" if row.default is None else repr(row.default)
        ways = (row.name, row.flag, f"/{row.word}" if row.word else "", row.file, default)
        yield (*(_code(way) if way else "" for way in ways), row.asked.allowed, row.help)


def _reasons(settings: Iterable[Setting]) -> Iterator[tuple[str, str, str]]:
    """Yield rows of settings, what they lack and why; settings with the same reason share a row."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in settings:
        for reason in dict.fromkeys(row.absent.values()):
            doors = ", ".join(_DOORS[door] for door, why in row.absent.items() if why == reason)
            reasons.setdefault((doors, reason), []).append(_code(row.name))
    return ((", ".join(names), doors, reason) for (doors, reason), names in reasons.items())


def _file_rows() -> Iterator[tuple[str, ...]]:
    for name, rule in RULES.items():
        default = value_of(Settings(), name)
        shown = str(default).lower() if isinstance(default, bool) else repr(default)
        yield _code(name), _code(shown.replace("'", '"')), rule.allowed, rule.meaning
    yield (
        _code("keys.ID"),
        "the usual key",
        "a key, or several separated by commas",
        "another key for an action, by the id that F5 shows",
    )


def _programs(parser: argparse.ArgumentParser) -> Iterator[str]:
    for command in commands_of(parser):
        yield f"### {command.name}\n\n{command.description}"
        rows = [
            (_code(" ".join(filter(None, [", ".join(options), value]))), does)
            for options, value, does in command.arguments
        ]
        if rows:
            yield _table(("argument", "what it does"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    escaped = (" | ".join(cell if "`" in cell else _escaped(cell) for cell in row) for row in rows)
    return "\n".join([*lines, *(f"| {row} |" for row in escaped)])


def _code(text: str) -> str:
    return f"`{_escaped(text)}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
