"""`mlxspec completion`: print what lets a shell complete our commands; shtab writes it.

The shell keeps the script, so no Python starts while somebody types.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import shtab

_FILES = ("FILE", "OUT", "TRACE", "A", "B", "WORD|FILE|FOLDER|ID|LIST")  # how the help calls them
_FOLDERS = ("FOLDER",)
_MODELS = ("model", "draft_model", "file", "folder")  # those that the help does not name


def run(args: argparse.Namespace) -> int:
    """Print the script for a shell."""
    for action in _actions(args.parser):
        if action.type is Path or action.metavar in _FILES or action.dest in _MODELS:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    print(shtab.complete(args.parser, args.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
