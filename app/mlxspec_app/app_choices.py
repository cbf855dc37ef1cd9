"""What screens may ask of the app they are in: the user's choices, and to change them."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from textual.app import App

from mlxspec_app.settings.file import Settings
from mlxspec_app.settings.rules import Value

FEW_ROWS = 10
"""With fewer, a terminal shows what is said and what is typed, and nothing else."""


@runtime_checkable
class AppChoices(Protocol):
    """The app, as far as it is about the user's choices.

    Attributes:
        settings: What the user chose.
        keys: The chosen keys that can be used, by the id of their binding.
        notices: What the user should know about the settings.
        settings_place: Where the settings file lies, or that there is none.
    """

    settings: Settings
    keys: Mapping[str, str]
    notices: tuple[str, ...]
    settings_place: str

    def change(self, name: str, value: Value | None) -> None:
        """Change a setting, in the app at once and in its file soon; None gives the default.

        Raises:
            ValueError: There is no such setting, or it cannot have this value.
        """


@runtime_checkable
class FollowsSettings(Protocol):
    """A screen on which settings have an effect."""

    def follow_settings(self, before: Settings, settings: Settings) -> None:
        """Show what is different now."""


def choices_of(app: App[object]) -> AppChoices:
    """Return the app of a screen by what it says about the user's choices."""
    assert isinstance(app, AppChoices)
    return app
