"""Runs commands, typed after a slash or chosen from the palette."""

from collections.abc import Callable, Mapping
from typing import Protocol

from mlxspec_app.commands import COMMANDS, Command, CommandError, Order, parse
from mlxspec_app.controllers.page import Page

Actions = Mapping[str, Callable[..., object]]
"""The function of each action, by its name in the command table. A screen may lack some."""


class CommandedPage(Page, Protocol):
    """A screen that accepts commands."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action is possible now."""

    def offer(self, line: str) -> None:
        """Put a line into the prompt for the user to complete."""

    def refuse(self, line: str, reason: str) -> None:
        """Show why a command failed, and put its line back into the prompt."""


class Commander:
    """Runs the commands of one screen, and explains why a command cannot run."""

    def __init__(self, page: CommandedPage, actions: Actions) -> None:
        """Accept the commands whose action is in `actions`."""
        self._page, self._actions = page, actions

    @property
    def commands(self) -> list[Command]:
        return [command for command in COMMANDS if self.can(command.action)]

    def can(self, action: str) -> bool:
        """Return whether this screen has an action at all, possible now or not."""
        return action in self._actions

    def enter(self, line: str, *, is_complete: bool = True) -> bool:
        """Run a line if it is a command; return whether it was one.

        With `is_complete` false, the line goes into the prompt to be completed.
        """
        if not is_complete:
            self._page.offer(f"{line} ")
            return True
        try:
            order = parse(line)
            if order is not None:
                self._carry_out(order)
        except CommandError as error:
            self._page.refuse(line, str(error))
            return True
        return order is not None

    def _carry_out(self, order: Order) -> None:
        command = order.command
        action = self._actions.get(command.action)
        if action is None or not self._page.check_action(command.action, ()):
            self._page.notify(f"/{command.name} cannot be used here", timeout=3)
        elif command.action == "adjust":
            action(command.name, order.argument)
        elif command.argument:
            action(order.argument)
        else:
            action()
