"""The recorded chat that comes with mlxspec, for those who have no model to talk to."""

from pathlib import Path

import mlxspec

_NAME = "chat.jsonl"


def find_demo() -> Path | None:
    """Return where the recording lies, in the package or in its source, or None."""
    package = Path(mlxspec.__file__).parent
    places = (folder / "assets" / _NAME for folder in (package, package.parent))
    return next((place for place in places if place.is_file()), None)
