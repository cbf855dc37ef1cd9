"""Completions of a typed line: commands, their arguments, and file names after an @."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlxspec_app.commands import Command, command_named, matching
from mlxspec_app.text.mentions import begun_mention, matching_files

_ARGUMENT = re.compile(r"/([a-z_]+) +(\S*)")


@dataclass(frozen=True)
class Completion:
    """One way to complete a line.

    Attributes:
        line: The completed line.
        label: Its text in a list.
        meaning: What it does, or "".
        is_whole: Whether the line can be entered; else something has to follow.
    """

    line: str
    label: str
    meaning: str = ""
    is_whole: bool = True


@dataclass(frozen=True)
class Completions:
    """The completions of one line.

    Attributes:
        found: The completions, the best one first.
        is_chosen: Whether Enter takes the first one. It does not if the line is valid as typed:
            then only the user chooses.
    """

    found: Sequence[Completion] = ()
    is_chosen: bool = False


def completions(line: str, words: Mapping[str, Sequence[str]], folder: Path) -> Completions:
    """Return the completions of the line typed so far.

    `words` are arguments found at run time, by the name of their command. File names are relative
    to `folder`.
    """
    typed = _ARGUMENT.fullmatch(line)
    command = command_named(typed[1]) if typed is not None else None
    if typed is not None and command is not None:
        return _of_argument(command, typed[2], (*command.choices, *words.get(command.name, ())))
    if commands := matching(line):
        return Completions([_of_command(command) for command in commands], is_chosen=True)
    mention = begun_mention(line)
    return Completions(list(_of_file(line, mention, folder)) if mention is not None else ())


def _of_command(command: Command) -> Completion:
    line = f"/{command.name} " if command.argument else f"/{command.name}"
    is_whole = not command.argument or command.is_optional
    return Completion(line, command.usage, command.meaning, is_whole)


def _of_argument(command: Command, begun: str, choices: Sequence[str]) -> Completions:
    low = begun.lower()
    found = [choice for choice in choices if choice.lower().startswith(low)]
    found.sort(key=lambda choice: choice.lower() != low)  # an exact match comes first
    is_chosen = bool(found) and bool(begun or not command.is_optional)
    if command.is_open:  # names can be long: their owners come first
        found += [one for one in choices if low in one.lower() and one not in found]
    meanings = command.explained
    rows = [Completion(f"/{command.name} {one}", one, meanings.get(one, "")) for one in found]
    return Completions(rows, is_chosen)


def _of_file(line: str, begun: str, folder: Path) -> Iterable[Completion]:
    before = line.removesuffix(begun)
    for name in matching_files(begun, folder):
        end = "" if name.endswith("/") else " "
        yield Completion(f"{before}{name}{end}", f"@{name}", is_whole=False)
