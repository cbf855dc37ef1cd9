"""`mlxspec completion`: print a script made by shtab, which the shell runs without Python."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import shtab

_FILES = ("FILE", "OUT", "TRACE", "A", "B", "WORD|FILE|FOLDER|ID|LIST")  # their names in the help
_FOLDERS = ("FOLDER",)
_MODELS = ("model", "draft_model", "file", "folder")  # arguments without such a name in the help


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
