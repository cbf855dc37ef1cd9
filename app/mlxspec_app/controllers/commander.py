"""Carries out commands, typed after a slash or chosen from the palette."""

from collections.abc import Callable, Mapping
from typing import Protocol

from mlxspec_app.commands import COMMANDS, Command, Order, UnknownCommandError, parse
from mlxspec_app.controllers.page import Page

Actions = Mapping[str, Callable[..., object]]
"""What each action does, by its name in the table of commands; what is missing cannot be done."""


class CommandedPage(Page, Protocol):
    """A screen that takes commands."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action can do something now."""

    def offer(self, line: str) -> None:
        """Let the user finish a line."""


class Commander:
    """Knows what commands a screen can carry out, and says why another one cannot be."""

    def __init__(self, page: CommandedPage, actions: Actions) -> None:
        """Carry out the commands that have one of these actions."""
        self._page, self._actions = page, actions

    @property
    def commands(self) -> list[Command]:
        """The commands that can be carried out."""
        return [command for command in COMMANDS if self.can(command.action)]

    def can(self, action: str) -> bool:
        """Return whether an action can be carried out at all."""
        return action in self._actions

    def enter(self, line: str, *, is_complete: bool = True) -> bool:
        """Carry out a line that is a command; return whether it was one.

        Args:
            line: What was typed or chosen.
            is_complete: Whether it lacks nothing; else it is only offered for typing on.
        """
        if not is_complete:
            self._page.offer(f"{line} ")
            return True
        try:
            order = parse(line)
        except UnknownCommandError as error:
            self._page.notify(str(error), severity="warning", timeout=4)
            return True
        if order is not None:
            self._carry_out(order)
        return order is not None

    def _carry_out(self, order: Order) -> None:
        command = order.command
        action = self._actions.get(command.action)
        if action is None or not self._page.check_action(command.action, ()):
            self._page.notify(f"/{command.name} has nothing to act on here", timeout=3)
        elif command.action == "adjust":
            action(command.name, order.argument)
        elif command.argument:
            action(order.argument)
        else:
            action()
