"""What controllers ask of the screen they work for; a screen of the app gives it as it stands."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal, Protocol

from mlxspec_app.conversation.messages import Message, Reply
from mlxspec_app.settings.file import Settings
from mlxspec_app.settings.rules import Value
from mlxspec_app.store.records import Overview, Version


class Choices(Protocol):
    """What the user chose, and how to change it; `app.MlxspecApp` says more."""

    settings: Settings

    def change(self, name: str, value: Value | None) -> None:
        """Change a setting, at once and for good."""


class PromptField(Protocol):
    """Where the user types."""

    @property
    def text(self) -> str:
        """What stands there."""

    def fill(self, text: str) -> None:
        """Hold a text instead, to be typed on at its end."""

    def restore(self, text: str) -> None:
        """Put text back that was to be sent, before what has been typed since."""

    def show_purpose(self, purpose: str) -> None:
        """Say above the field what the text is for; "" for a message."""

    def show_chat(self, title: str) -> None:
        """Say below the field which chat it is."""

    def focus(self) -> object:
        """Let the user type here."""


class ShownTranscript(Protocol):
    """The conversation on the screen."""

    @property
    def pointed_message(self) -> Message | None:
        """The message that is pointed at."""

    @property
    def pointed_character(self) -> int:
        """Where in its text that is."""

    def follow(self) -> None:
        """Show the end, and what comes there."""

    def show_message(self, message: Message) -> None:
        """Show where a message begins."""

    def show_versions(self, versions: Mapping[int, Version]) -> None:
        """Mark the messages that have several versions, by their numbers."""

    def toggle_rendered(self, reply: Reply) -> Coroutine[Any, Any, None]:
        """Show a reply as Markdown, or its tokens again."""


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
        """Say something for so many seconds."""

    def run_beside(
        self,
        work: Callable[[], Coroutine[Any, Any, None]],
        *,
        group: str = "default",
        exit_on_error: bool = True,
        exclusive: bool = False,
    ) -> None:
        """Run something beside the screen.

        Args:
            work: What to run, called when it is its turn: another one may end it before.
            group: Of what kind it is.
            exit_on_error: Whether an error that it raises ends the app.
            exclusive: Whether it ends the others of its group.
        """


class ChatPage(Page, Protocol):
    """A screen with a conversation that can be added to."""

    @property
    def prompt(self) -> PromptField:
        """Where the user types."""

    @property
    def choices(self) -> Choices:
        """What the user chose."""

    def after_order(self) -> None:
        """Show at once what an order to the session changed."""

    def refresh_bindings(self) -> None:
        """Find out anew which keys do something."""

    def call_after_refresh(self, callback: Callable[[], None]) -> object:
        """Call something when what is known by now is on the screen."""

    def show_chats(self, chats: Overview) -> None:
        """Say that there are chats to go on with."""
