"""The recordings that come with mlxspec."""

from mlxspec.errors import TraceError
from mlxspec.files import asset
from mlxspec.trace.events import Event
from mlxspec.trace.file import read_trace


def read_bundled(name: str) -> list[Event]:
    """Return a recording: a "chat", or the runs of a race, "code-plain" and "code".

    If it is missing or damaged, this raises `TraceError`.
    """
    path = asset(f"{name}.jsonl")
    if not path.is_file():
        raise TraceError(f"the recording {name}.jsonl is not part of this installation: {path}")
    return list(read_trace(path))
