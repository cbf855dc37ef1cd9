"""A race between two replies to one prompt, played over the chat."""

from typing import ClassVar

from textual.binding import Binding, BindingType

from mlxspec_app.screens.race import RaceScreen


class LiveRaceScreen(RaceScreen):
    """Plays a race; Escape and q go back to the chat."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "escape,q",
            "dismiss(None)",
            "Back",
            priority=True,
            id="race.back",
            tooltip="back to the conversation",
        )
    ]
