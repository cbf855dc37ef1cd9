"""The commands: one table for slash commands, the palette and the help page.

A line is a command if it starts with a slash and a name. A single unknown word after a slash is an
error, because it was meant as a command. Any other line is a message, for example a path.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

from textual.command import DiscoveryHit, Hit, Hits, Provider

from mlxspec.drafting.names import WORDS as DRAFTER_WORDS
from mlxspec.errors import did_you_mean
from mlxspec.params.setting import Setting
from mlxspec.params.table import ADJUSTABLE
from mlxspec_app.conversation.views import INKS, VIEWS, Ink, View
from mlxspec_app.export.filing import FORMATS
from mlxspec_app.themes import THEMES

_WORD = re.compile(r"/[a-z_]+")
_THEME_NAMES = tuple(theme.name for theme in THEMES)


@dataclass(frozen=True)
class Command:
    """A command, by the word after the slash."""

    name: str
    meaning: str
    argument: str = ""  # as the help shows it: "[NAME]" is optional
    choices: tuple[str, ...] = ()  # of the first argument; empty allows any text
    _: KW_ONLY
    is_open: bool = False  # arguments other than `choices` are allowed too
    does: str = ""  # the name of an action of the screen, which may lack it; "" for `name`
    parameters: tuple[str, ...] = ()  # what the action gets before the argument
    aliases: tuple[str, ...] = ()
    # what it does with a choice, or with "" for no argument
    explained: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def action(self) -> str:
        return self.does or self.name

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.argument}".rstrip()

    @property
    def is_optional(self) -> bool:  # the argument
        return self.argument.startswith("[")


def _setting(row: Setting) -> Command:
    meaning = f"{row.help}, from the next reply on; with no value, show it"
    choices = ("on", "off") if row.range.kind is bool else row.range.choices
    return Command(
        row.word, meaning, f"[{row.noun}]", choices, does="adjust", parameters=(row.word,)
    )


def _named(name: str, meaning: str, entries: Sequence[Ink | View]) -> Command:
    """Return a command that takes the name of an ink or a view."""
    explained = {entry.name: entry.meaning for entry in entries}
    return Command(name, meaning, "[NAME]", tuple(explained), explained=explained)


COMMANDS = (
    Command("help", "what the colours, keys and commands mean"),
    Command("new", "start a new chat", does="new_chat", aliases=("clear",)),
    Command(
        "retry",
        "retry the last reply, with the same seed, a new one, or the one given",
        "[SEED]",
        ("same", "new"),
        is_open=True,
        does="regenerate",
        aliases=("regenerate",),
        explained={
            "": "retry the last reply; a sampled one with a new seed",
            "same": "retry the last reply with the present seed",
            "new": "retry the last reply with a new seed",
        },
    ),
    Command("edit", "edit your last message; the old branch is kept"),
    Command("editor", "write the message in your own editor ($VISUAL, $EDITOR)"),
    Command("fork", "fork this chat: continue in a copy, up to here"),
    Command("chats", "list all chats", aliases=("history",)),
    Command("search", "search all chats", "WORDS", does="chats"),
    Command("find", "search this chat", "[WORDS]"),
    Command("continue", "continue the last reply where its limit cut it, else the previous chat"),
    Command("rename", "rename this chat", "TITLE"),
    Command("stop", "stop the reply"),
    Command("verify", "write the last reply again by the model alone, and compare"),
    Command(
        "race",
        "answer a prompt, or your last one, by the model alone and with guesses, in 150 tokens or "
        "as many as a number before it says",
        "[COUNT] [PROMPT]",
    ),
    Command("model", "choose a model, or load the one named", "[NAME]", is_open=True),
    Command(
        "fetch", "download the model that fits this machine, while you chat", "[stop]", ("stop",)
    ),
    Command("draft", "choose a drafter by its name", "[NAME]", DRAFTER_WORDS, is_open=True),
    Command(
        "system", "set the system prompt; with no text, edit it; - for the model's own", "[TEXT]"
    ),
    Command("replay", "step through the conversation round by round"),
    Command("copy", "copy the last reply", does="copy_message"),
    Command("code", "copy the last code block", does="copy_code"),
    Command(
        "export",
        "export the conversation to a file, by default a page; --force overwrites one",
        "[FORMAT] [FILE]",
        tuple(FORMATS),
    ),
    Command(
        "markdown",
        "show the last reply as rendered Markdown, or its exact text",
        does="toggle_markdown",
    ),
    _named("view", "calm or xray: how much the text shows of who wrote it", VIEWS),
    Command(
        "reasoning", "show the reasoning of the last reply, or fold it", does="toggle_reasoning"
    ),
    _named("ink", "recolour the X-ray in this session; /settings keeps the choice", INKS),
    Command("theme", "change the theme, for a dark or a light terminal", "[NAME]", _THEME_NAMES),
    Command("settings", "all settings and keys"),
    Command(
        "tree",
        "show or hide the draft: its tree, its attention mask, its rows in the cache",
        "[VIEW]",
        ("tree", "mask", "tape"),
        does="toggle_tree",
    ),
    Command("stats", "show or hide the figures", does="toggle_stats"),
    Command("up", "scroll up a page", does="scroll", parameters=("up",)),
    Command("down", "scroll down a page", does="scroll", parameters=("down",)),
    Command("follow", "scroll to the newest text", does="scroll", parameters=("end",)),
    Command("context", "show what fills the context, and the room left"),
    *map(_setting, ADJUSTABLE.values()),
    Command("quit", "leave", aliases=("exit",)),
)

BY_NAME = {name: command for command in COMMANDS for name in (command.name, *command.aliases)}


class CommandError(ValueError):
    """The command does not exist, or its argument is wrong."""


def parse(line: str) -> tuple[Command, str] | None:
    """Return the command of a line and its argument, "" for none; None for a message.

    Raises:
        CommandError: There is no such command, or its argument is missing or not allowed.
    """
    word, *rest = line.split(maxsplit=1) or [""]
    argument = rest[0].strip() if rest else ""
    command = BY_NAME.get(word.removeprefix("/")) if word.startswith("/") else None
    if command is None:
        if argument or not _WORD.fullmatch(word):
            return None
        hint = did_you_mean(word, (f"/{name}" for name in BY_NAME)) or "/help lists them"
        raise CommandError(f"{word} is not a command; {hint}")
    _check(command, argument)
    return command, argument


def matching(line: str) -> Sequence[Command]:
    """Return the commands that start with a line: first an exact name, then names, then aliases."""
    if not re.fullmatch(r"/[a-z_]*", line):
        return ()
    begun = line[1:]
    exact = [BY_NAME[begun]] if begun in BY_NAME else []
    named = [command for command in COMMANDS if command.name.startswith(begun)]
    also = [c for c in COMMANDS if any(alias.startswith(begun) for alias in c.aliases)]
    return list(dict.fromkeys([*exact, *named, *also]))


def _check(command: Command, argument: str) -> None:
    if argument and not command.argument:
        raise CommandError(f"/{command.name} takes no argument; got {argument!r} after it")
    if command.argument and not argument and not command.is_optional:
        raise CommandError(f"{command.usage}: {command.argument} is missing")
    word, _, more = command.argument.partition(" ")
    chosen = argument.partition(" ")[0] if more else argument
    if argument and command.choices and not command.is_open and chosen not in command.choices:
        allowed = ", ".join(command.choices)
        raise CommandError(f"{word.strip('[]')} is one of {allowed}; got {chosen!r}")


class CommandProvider(Provider):
    """Offers the commands of the screen."""

    async def discover(self) -> Hits:
        for line, meaning, is_complete in _lines():
            yield DiscoveryHit(line, self._entering(line, is_complete), help=meaning)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for line, meaning, is_complete in _lines():
            score = max(matcher.match(line), matcher.match(meaning))
            if score > 0:
                entering = self._entering(line, is_complete)
                yield Hit(score, matcher.highlight(line), entering, help=meaning)

    def _entering(self, line: str, is_complete: bool) -> partial[None]:
        screen: Any = self.screen  # a `ConversationScreen`, which imports this module
        return partial(screen.enter, line, is_complete=is_complete)


def _lines() -> Iterator[tuple[str, str, bool]]:
    """Yield each line that can be entered, what it does, and whether the line is complete."""
    for command in COMMANDS:
        for choice in command.choices:
            yield f"/{command.name} {choice}", command.explained.get(choice, command.meaning), True
        if not command.choices or command.is_open:
            meaning = command.explained.get("", command.meaning)
            yield f"/{command.name}", meaning, not command.argument or command.is_optional
