"""What controllers need of their screen, as protocols; the screens of the app implement them."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal, Protocol

from mlxspec_app.conversation.messages import Message, Reply
from mlxspec_app.settings.file import Settings
from mlxspec_app.settings.rules import Value
from mlxspec_app.store.records import Overview, Version


class Choices(Protocol):
    """The settings and how to change them; see `app.MlxspecApp`."""

    settings: Settings

    def change(self, name: str, value: Value | None) -> None:
        """Change a setting, now and in the settings file."""


class PromptField(Protocol):
    """The input field of the chat."""

    @property
    def text(self) -> str:
        """The text in the field."""

    @property
    def unsent(self) -> str:
        """The text as it would be sent, with long pastes in full."""

    def fill(self, text: str) -> None:
        """Replace the text and put the cursor at its end."""

    def restore(self, text: str) -> None:
        """Put unsent text back, before anything typed since."""

    def set_aside(self) -> None:
        """Clear the field; the history keeps its text."""

    def show_purpose(self, purpose: str) -> None:
        """Show above the field what the text is for; "" for a message."""

    def show_chat(self, title: str) -> None:
        """Show the title of the chat below the field."""

    def focus(self) -> object:
        """Give the field the focus."""


class ShownTranscript(Protocol):
    """The conversation on the screen."""

    @property
    def pointed_message(self) -> Message | None:
        """The message under the cursor, or None."""

    @property
    def pointed_character(self) -> int:
        """Index of the character under the cursor in the text of that message."""

    def follow(self) -> None:
        """Show the end and follow new text."""

    def show_message(self, message: Message) -> None:
        """Scroll to the start of a message."""

    def show_versions(self, versions: Mapping[int, Version]) -> None:
        """Mark the messages with several versions, by message number."""

    def toggle_reasoning(self, reply: Reply) -> bool:
        """Unfold or fold the reasoning of a reply; return whether it has any."""

    def toggle_rendered(self, reply: Reply) -> None:
        """Switch a reply between rendered Markdown and its exact text."""


class Page(Protocol):
    """A screen with a conversation."""

    @property
    def transcript(self) -> ShownTranscript:
        """The conversation on it."""

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: Literal["information", "warning", "error"] = "information",
        timeout: float | None = None,
    ) -> None:
        """Show a notice for `timeout` seconds; None for the usual time."""

    def run_beside(
        self,
        work: Callable[[], Coroutine[Any, Any, None]],
        *,
        group: str = "default",
        exit_on_error: bool = True,
        exclusive: bool = False,
    ) -> None:
        """Run a coroutine in the background.

        `work` makes it when the work starts, because other work may cancel it before. `exclusive`
        cancels the other work of the group. With `exit_on_error`, an error ends the app.
        """


class ChatPage(Page, Protocol):
    """A screen with a conversation that the user can continue."""

    @property
    def prompt(self) -> PromptField:
        """The input field."""

    @property
    def choices(self) -> Choices:
        """The settings of the user."""

    def after_order(self) -> None:
        """Show the effect of an order to the session at once."""

    def refresh_bindings(self) -> None:
        """Update which keys are possible now."""

    def call_after_refresh(self, callback: Callable[[], None]) -> object:
        """Call `callback` after the next redraw."""

    def show_chats(self, chats: Overview) -> None:
        """Show that there are stored chats."""
