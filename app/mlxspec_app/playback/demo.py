"""The recordings that come with mlxspec."""

from pathlib import Path

import mlxspec
from mlxspec.errors import TraceError
from mlxspec.trace.events import Event
from mlxspec.trace.file import read_trace


def read_bundled(name: str) -> list[Event]:
    """Return a recording: a "chat", or the runs of a race, "code-plain" and "code".

    It is in the package or, in a checkout, in the folder next to it. If it is missing or damaged,
    this raises `TraceError`.
    """
    package = Path(mlxspec.__file__).parent
    paths = [folder / "assets" / f"{name}.jsonl" for folder in (package, package.parent)]
    found = next((path for path in paths if path.is_file()), None)
    if found is None:
        raise TraceError(f"the recording {name}.jsonl is not part of this installation: {paths[0]}")
    return list(read_trace(found))
