"""The command palette: a search over all commands of the table."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from textual.command import DiscoveryHit, Hit, Hits, Provider

from mlxspec_app.commands import COMMANDS


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
