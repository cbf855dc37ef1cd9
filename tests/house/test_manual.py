"""The manual lists what the program has, and every setting has all its front doors or says why."""

import argparse
import io
from contextlib import redirect_stdout
from dataclasses import fields

import pytest

from mlxspec.params import GenerationParams, Options, SamplingParams
from mlxspec.params.setting import Door
from mlxspec.params.table import ADJUSTABLE, GENERATION, LOAD, SAMPLING, STORED
from mlxspec_app.commands import COMMANDS
from mlxspec_app.screens.settings import setting_options
from mlxspec_app.settings.file import Settings
from mlxspec_app.settings.keys.tables import CHAT
from mlxspec_app.settings.rules import RULES
from mlxspec_cli.main import main
from mlxspec_cli.parser import build_parser

SETTINGS = (*SAMPLING, *GENERATION, *LOAD)


@pytest.fixture(scope="module")
def page():
    """The manual as the command prints it."""
    with redirect_stdout(io.StringIO()) as printed:
        assert main(["man", "--markdown"]) == 0
    return printed.getvalue()


def flags_of(command):
    """{flag: argument} of a command."""
    subparsers = next(
        action
        for action in build_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    arguments = subparsers.choices[command]._actions
    return {flag: argument for argument in arguments for flag in argument.option_strings}


# ---- the front doors -------------------------------------------------------------------------


def test_every_field_but_the_sampling_itself_has_a_row():
    for kind, rows in (
        (SamplingParams, SAMPLING),
        (GenerationParams, GENERATION),
        (Options, LOAD[1:]),
    ):
        assert [row.name for row in rows] == [f.name for f in fields(kind) if f.name != "sampling"]


def failing(is_right):
    """The settings that a check is wrong for."""
    return [f"{row.name}{row.flag}" for row in SETTINGS if not is_right(row)]


def test_a_setting_has_every_door_or_says_why_not():
    def is_right(row):
        doors = Door.__args__
        return all(bool(getattr(row, door)) != bool(row.absent.get(door)) for door in doors)

    assert failing(is_right) == []


@pytest.mark.parametrize("command", ["chat", "generate"])
def test_the_flag_of_a_setting_is_one_of_the_command_and_says_what_it_does(command):
    flags = flags_of(command)
    with_flag = {row.name for row in SETTINGS if row.flag}

    def is_right(row):
        if row.flag:
            return flags[row.flag].dest == row.name and row.help in flags[row.flag].help
        named = {argument.dest for argument in flags.values()}
        return row.name in with_flag or row.name not in named

    assert failing(is_right) == []


def test_the_settings_file_its_screen_and_the_manual_have_what_is_kept(page):
    shown = {option.id for option in setting_options(Settings(), {}, {})}
    section, kept = page.split("### The settings file")[1], RULES
    with_file = {row.name for row in SETTINGS if row.file}

    def is_right(row):
        if row.file:
            return row.file in kept and row.file in shown and f"\n| `{row.file}` |" in section
        return row.name in with_file or f"sampling.{row.name}" not in kept

    assert failing(is_right) == []


def test_the_slash_word_of_a_setting_is_a_command():
    actions = {command.name: command.action for command in COMMANDS}

    def is_right(row):
        is_of_a_reply = row in (*SAMPLING, *GENERATION)
        return not row.word or (actions[row.word] == "adjust") == is_of_a_reply

    assert failing(is_right) == []


def test_the_manual_names_a_setting_and_its_doors(page):
    lines = page.split("## Settings")[1].splitlines()

    def is_right(row):
        start = f"| `{row.name}` | " + (f"`{row.flag}`" if row.flag else " ")
        line = next(line for line in lines if line.startswith(start))
        words = [f"`{door}`" for door in (row.flag, row.file) if door]
        words += [f"`/{row.word}`"] if row.word else []
        return row.help in line and all(word in line for word in words)

    assert failing(is_right) == []


def test_every_slash_word_and_every_line_of_the_file_is_of_one_row():
    assert [command.name for command in COMMANDS if command.action == "adjust"] == list(ADJUSTABLE)
    assert [name for name in RULES if name.startswith("sampling.")] == [
        name for name in STORED if name.startswith("sampling.")
    ]
    for door in Door.__args__:
        ways = [getattr(row, door) for row in SETTINGS if getattr(row, door)]
        assert len(set(ways)) == len(ways)


# ---- the page --------------------------------------------------------------------------------


def test_every_command_and_every_key_of_the_chat_is_listed(page):
    assert all(f"| `{command.usage}` | {command.meaning}" in page for command in COMMANDS)
    assert all(f" | {binding.tooltip} |" in page for binding in CHAT)


def test_every_flag_of_every_command_is_listed(page):
    made = page.split("## Commands of the shell")[1]
    for command in ("chat", "generate", "bench", "verify", "export"):
        section = made.split(f"### mlxspec {command}\n")[1].split("\n###")[0]
        flags = set(flags_of(command)) - {"-h", "--help", "--debug"}
        assert {flag for flag in flags if f"{flag}" not in section} == set()


def test_nothing_is_listed_twice_in_one_table(page):
    for table in page.split("\n\n"):
        rows = [line for line in table.splitlines() if line.startswith("| `")]
        assert len(set(rows)) == len(rows)
