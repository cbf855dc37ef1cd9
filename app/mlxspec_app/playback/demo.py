"""The recorded chat that comes with mlxspec, for users without a model."""

from pathlib import Path

import mlxspec
from mlxspec.errors import TraceError
from mlxspec.trace.events import Event
from mlxspec.trace.file import read_trace

_NAME = "chat.jsonl"


def read_demo() -> list[Event]:
    """Return the recording: from the package, or in a checkout from the folder beside it.

    Raises:
        TraceError: The recording is not part of this installation, or is damaged.
    """
    package = Path(mlxspec.__file__).parent
    paths = [folder / "assets" / _NAME for folder in (package, package.parent)]
    found = next((path for path in paths if path.is_file()), None)
    if found is None:
        raise TraceError(f"the recorded chat is not part of this installation: {paths[0]}")
    return list(read_trace(found))
