"""The keys and commands for the README, from the tables that the app itself reads.

`python -m mlxspec_app.manual README.md` writes them between two marks of the file; a test
fails when they are out of date.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from mlxspec_app.commands import COMMANDS, Command
from mlxspec_app.settings.keys.chat import CHAT, PROMPT_KEYS, TRANSCRIPT
from mlxspec_app.settings.keys.chats import HISTORY, LIST
from mlxspec_app.settings.keys.names import key_list
from mlxspec_app.settings.keys.recordings import RACE, REPLAY

BEGIN = "<!-- keys and commands: written by `python -m mlxspec_app.manual README.md` -->"
END = "<!-- end of keys and commands -->"


def reference() -> str:
    """Return the tables as Markdown."""
    chat = [*PROMPT_KEYS, *key_list((*CHAT, *TRANSCRIPT, *HISTORY, *LIST))]
    known = set(chat)
    replay = [row for row in key_list(REPLAY) if row not in known]
    known |= set(replay)
    race = [row for row in key_list(RACE) if row not in known]
    return "\n\n".join(
        [
            _table("key", "in the chat", ((_code(key), does) for key, does in chat)),
            _table("key", "in a replay, besides", ((_code(key), does) for key, does in replay)),
            _table("key", "in a race, besides", ((_code(key), does) for key, does in race)),
            _table("command", "what it does", map(_command_row, COMMANDS)),
        ]
    )


def updated(text: str) -> str:
    """Return a document with the tables between its marks.

    Raises:
        ValueError: It lacks a mark.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the tables go between the lines {BEGIN} and {END}: add them")
    return f"{before}{BEGIN}\n\n{reference()}\n\n{END}{after}"


def _command_row(command: Command) -> tuple[str, str]:
    names = ", ".join(f"`/{alias}`" for alias in command.aliases)
    meaning = f"{command.meaning} (also {names})" if names else command.meaning
    return _code(command.usage), meaning


def _table(left: str, right: str, rows: Iterable[tuple[str, str]]) -> str:
    head = [f"| {left} | {right} |", "|---|---|"]
    return "\n".join([*head, *(f"| {a} | {_escaped(b)} |" for a, b in rows)])


def _code(text: str) -> str:
    return f"`{_escaped(text)}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: Sequence[str]) -> None:
    """Write the tables into the named file."""
    (name,) = arguments
    path = Path(name)
    path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
