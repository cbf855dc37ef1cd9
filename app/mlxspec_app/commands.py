"""The commands: one table for slash commands, the palette and the help page.

A line is a command if it starts with a slash and the name of a command. A single unknown word after
a slash is an error, because it was meant as a command. Any other line is a message, for example a
path.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from mlxspec.drafting.names import WORDS as DRAFTER_WORDS
from mlxspec.params.setting import Setting
from mlxspec.params.table import ADJUSTABLE
from mlxspec_app.conversation.inks import INKS
from mlxspec_app.conversation.views import VIEWS
from mlxspec_app.export.filing import FORMATS
from mlxspec_app.themes import THEMES

_WORD = re.compile(r"/[a-z_]+")


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        name: The word after the slash.
        meaning: What it does, in a few words.
        action: The name of an action of the screen; a screen may lack it.
        parameters: What the action gets before the argument.
        argument: A word for its argument; "" for a command without one.
        choices: The allowed arguments; empty allows any text.
        is_open: Whether arguments other than `choices` are allowed too.
        rest: A word for what may follow the argument; "" if nothing may.
        explained: What it does with a choice, or with "" for no argument, where described.
    """

    name: str
    meaning: str
    action: str
    argument: str = ""
    choices: tuple[str, ...] = ()
    is_open: bool = False
    rest: str = ""
    is_optional: bool = False
    aliases: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    explained: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def usage(self) -> str:
        """The command as it is typed."""
        if not self.argument:
            return f"/{self.name}"
        argument = f"[{self.argument}]" if self.is_optional else self.argument
        return f"/{self.name} {argument}" + (f" [{self.rest}]" if self.rest else "")


def _setting(row: Setting) -> Command:
    meaning = f"{row.help}, from the next reply on; with no value, show it"
    choices = ("on", "off") if row.range.kind is bool else row.range.choices
    return Command(
        row.word, meaning, "adjust", row.noun, choices, is_optional=True, parameters=(row.word,)
    )


COMMANDS = (
    Command("help", "what the colours, keys and commands mean", "help"),
    Command("new", "start a new chat", "new_chat", aliases=("clear",)),
    Command(
        "retry",
        "retry the last reply, with the same seed, a new one, or the one given",
        "regenerate",
        "SEED",
        ("same", "new"),
        is_open=True,
        is_optional=True,
        aliases=("regenerate",),
        explained={
            "": "retry the last reply; a sampled one with a new seed",
            "same": "retry the last reply with the present seed",
            "new": "retry the last reply with a new seed",
        },
    ),
    Command("edit", "edit your last message; the old branch is kept", "edit"),
    Command("editor", "write the message in your own editor ($VISUAL, $EDITOR)", "editor"),
    Command("fork", "fork this chat: continue in a copy, up to here", "fork"),
    Command("chats", "list all chats", "chats", aliases=("history",)),
    Command("search", "search all chats", "chats", "WORDS"),
    Command("find", "search this chat", "find", "WORDS", is_optional=True),
    Command("continue", "continue the previous chat", "continue"),
    Command("rename", "rename this chat", "rename", "TITLE"),
    Command("stop", "stop the reply", "stop"),
    Command("verify", "decode the last reply again without drafts and compare", "verify"),
    Command(
        "race",
        "answer a prompt without and with drafts, and play both; with no prompt, your last one",
        "race",
        "PROMPT",
        is_open=True,
        is_optional=True,
    ),
    Command(
        "model",
        "choose a model, or load the one named",
        "model",
        "NAME",
        is_open=True,
        is_optional=True,
    ),
    Command(
        "draft",
        "choose a drafter by its name",
        "draft",
        "NAME",
        DRAFTER_WORDS,
        is_open=True,
        is_optional=True,
    ),
    Command(
        "system",
        "set the system prompt; with no text, edit it; - for the model's own",
        "system",
        "TEXT",
        is_optional=True,
    ),
    Command("replay", "step through the conversation round by round", "replay"),
    Command("copy", "copy the last reply", "copy_message"),
    Command("code", "copy the last code block", "copy_code"),
    Command(
        "export",
        "export the conversation to a file, by default a page; --force overwrites one",
        "export",
        "FORMAT",
        tuple(FORMATS),
        rest="FILE",
        is_optional=True,
    ),
    Command(
        "markdown", "show the last reply as rendered Markdown, or its exact text", "toggle_markdown"
    ),
    Command(
        "view",
        "calm, colours or xray: how much the text shows of who wrote it",
        "view",
        "NAME",
        tuple(view.name for view in VIEWS),
        is_optional=True,
        explained={view.name: view.meaning for view in VIEWS},
    ),
    Command("reasoning", "show the reasoning of the last reply, or fold it", "toggle_reasoning"),
    Command(
        "ink",
        "recolour the X-ray in this session; /settings keeps the choice",
        "ink",
        "NAME",
        tuple(ink.name for ink in INKS),
        is_optional=True,
        explained={ink.name: ink.meaning for ink in INKS},
    ),
    Command(
        "theme",
        "change the theme, for a dark or a light terminal",
        "theme",
        "NAME",
        tuple(theme.name for theme in THEMES),
        is_optional=True,
    ),
    Command("settings", "all settings and keys", "settings"),
    Command(
        "tree",
        "show or hide the draft: its tree, its attention mask, its rows in the cache",
        "toggle_tree",
        "VIEW",
        ("tree", "mask", "tape"),
        is_optional=True,
    ),
    Command("stats", "show or hide the figures", "toggle_stats"),
    Command("up", "scroll up a page", "scroll", parameters=("up",)),
    Command("down", "scroll down a page", "scroll", parameters=("down",)),
    Command("follow", "scroll to the newest text", "scroll", parameters=("end",)),
    Command("context", "show what fills the context, and the room left", "context"),
    *map(_setting, ADJUSTABLE.values()),
    Command("quit", "leave", "quit", aliases=("exit",)),
)

_BY_NAME = {name: command for command in COMMANDS for name in (command.name, *command.aliases)}


@dataclass(frozen=True)
class CommandLine:
    """A command that was typed, and its argument; "" for none."""

    command: Command
    argument: str = ""


class CommandError(ValueError):
    """The command does not exist, or its argument is wrong."""


def parse(line: str) -> CommandLine | None:
    """Return the command of a line, or None for a message.

    Raises:
        CommandError: There is no such command, or its argument is missing or not allowed.
    """
    word, *rest = line.split(maxsplit=1) or [""]
    argument = rest[0].strip() if rest else ""
    command = _BY_NAME.get(word.removeprefix("/")) if word.startswith("/") else None
    if command is None:
        if argument or not _WORD.fullmatch(word):
            return None
        close = get_close_matches(word[1:], _BY_NAME, n=1)
        hint = f"did you mean /{close[0]}?" if close else "/help lists them"
        raise CommandError(f"{word} is not a command; {hint}")
    _check(command, argument)
    return CommandLine(command, argument)


def command_named(name: str) -> Command | None:
    """Return the command with a name or alias, or None."""
    return _BY_NAME.get(name)


def matching(line: str) -> Sequence[Command]:
    """Return the commands that start with a line: first an exact name, then names, then aliases."""
    if not re.fullmatch(r"/[a-z_]*", line):
        return ()
    begun = line[1:]
    exact = [_BY_NAME[begun]] if begun in _BY_NAME else []
    named = [command for command in COMMANDS if command.name.startswith(begun)]
    also = [c for c in COMMANDS if any(alias.startswith(begun) for alias in c.aliases)]
    return list(dict.fromkeys([*exact, *named, *also]))


def _check(command: Command, argument: str) -> None:
    if argument and not command.argument:
        raise CommandError(f"/{command.name} takes no argument; got {argument!r} after it")
    if command.argument and not argument and not command.is_optional:
        raise CommandError(f"{command.usage}: {command.argument} is missing")
    chosen = argument.partition(" ")[0] if command.rest else argument
    if argument and command.choices and not command.is_open and chosen not in command.choices:
        allowed = ", ".join(command.choices)
        raise CommandError(f"{command.argument} is one of {allowed}; got {chosen!r}")
