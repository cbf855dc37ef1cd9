"""How often the screen is drawn: as often as the eye or the connection takes."""

import os

from mlxspec_app.settings.file import Settings

_FRAMES_PER_S = 30
_FRAMES_PER_S_OVER_SSH = 15


def frames_per_s(settings: Settings) -> int:
    """Return the frames per second that were chosen, else those that suit the connection."""
    usual = _FRAMES_PER_S_OVER_SSH if "SSH_CONNECTION" in os.environ else _FRAMES_PER_S
    return settings.frame_rate or usual
