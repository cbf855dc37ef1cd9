"""A screen that takes commands, typed after a slash or chosen from the palette."""

from functools import partial

from mlxspec.errors import TraceError
from mlxspec.trace.events import Event
from mlxspec_app.app_choices import choices_of
from mlxspec_app.commands import COMMANDS, Command, Order, UnknownCommandError, parse
from mlxspec_app.conversation.session import Session
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.export.filing import FORCE, FilingOrder, file_away, read_order
from mlxspec_app.palette import CommandProvider
from mlxspec_app.playback.events_of import events_of
from mlxspec_app.screens.steady import SteadyScreen
from mlxspec_app.text.clipboard import copy_text
from mlxspec_app.themes import THEMES


class CommandedScreen(SteadyScreen[None]):
    """Carries out the commands of `mlxspec_app.commands`; an action it lacks is said to be.

    Attributes:
        session: What the commands are for.
        state: What is known about it.
    """

    COMMANDS = {CommandProvider}  # noqa: RUF012
    session: Session
    state: ChatState

    def enter(self, line: str, *, is_complete: bool = True) -> bool:
        """Carry out a line that is a command; return whether it was one.

        Args:
            line: What was typed or chosen.
            is_complete: Whether it lacks nothing; else it is only offered for typing on.
        """
        if not is_complete:
            self.offer(f"{line} ")
            return True
        try:
            order = parse(line)
        except UnknownCommandError as error:
            self.notify(str(error), severity="warning", timeout=4)
            return True
        if order is not None:
            self._carry_out(order)
        return order is not None

    def known_commands(self) -> list[Command]:
        """Return the commands that this screen can carry out."""
        return [command for command in COMMANDS if hasattr(self, f"action_{command.action}")]

    def offer(self, line: str) -> None:
        """Let the user finish a line; here there is nowhere to type."""
        self.notify(f"{line.strip()} cannot be typed here", timeout=3)

    def copy(self, text: str, if_empty: str) -> None:
        """Copy text and name the route it took, or say why there is none."""
        if not text:
            self.notify(if_empty, timeout=3)
            return
        copied = copy_text(self.app, text)
        self.notify(
            f"{len(text)} characters, {copied.route}", title=copied.title, timeout=copied.seconds
        )

    def action_theme(self, name: str) -> None:
        names = [theme.name for theme in THEMES]
        place = names.index(self.app.theme) if self.app.theme in names else -1
        choices_of(self.app).change("theme", name or names[(place + 1) % len(names)])

    def action_settings(self) -> None:
        from mlxspec_app.screens.settings import SettingsScreen  # not before the first frame

        self.app.push_screen(SettingsScreen(self.session.adjustable()))

    def action_export(self, text: str) -> None:
        try:
            order = read_order(text)
        except ValueError as error:
            self.notify(str(error), severity="warning", timeout=4)
            return
        events = events_of(self.state)  # before more is said
        self.run_worker(partial(self._export, order, events), thread=True, exit_on_error=False)

    def action_quit(self) -> None:
        self.app.exit()

    def _carry_out(self, order: Order) -> None:
        command = order.command
        action = getattr(self, f"action_{command.action}", None)
        if action is None or not self.check_action(command.action, ()):
            self.notify(f"/{command.name} has nothing to act on here", timeout=3)
        elif command.action == "adjust":
            action(command.name, order.argument)
        elif command.argument:
            action(order.argument)
        else:
            action()

    def _export(self, order: FilingOrder, events: list[Event]) -> None:
        """Write a file and say where it is; runs in a thread of its own."""
        try:
            filed = file_away(order, events)
        except FileExistsError as error:
            problem = f"{error.filename} is there already: name another file, or add {FORCE}"
        except TraceError:
            problem = "there is no reply to export yet"
        except OSError as error:
            problem = f"{error.filename} cannot be written: {error.strerror}"
        else:
            size = f"{filed.size / 1000:.0f} kB"
            self.app.call_from_thread(
                self.notify, f"{filed.path.resolve()} ({size})", title="Exported", timeout=6
            )
            return
        self.app.call_from_thread(self.notify, problem, severity="warning", timeout=6)
