"""The recorded chat that comes with mlxspec, for those who have no model to talk to."""

from pathlib import Path

import mlxspec
from mlxspec.errors import TraceError
from mlxspec.trace.events import Event
from mlxspec.trace.file import read_trace

_NAME = "chat.jsonl"


def read_demo() -> list[Event]:
    """Return the recording, which lies in the package or, in its source, beside it.

    Raises:
        TraceError: It is not part of this installation, or damaged.
    """
    package = Path(mlxspec.__file__).parent
    places = [folder / "assets" / _NAME for folder in (package, package.parent)]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise TraceError(f"the recorded chat is not part of this installation: {places[0]}")
    return list(read_trace(found))
