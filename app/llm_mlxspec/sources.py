"""The models that a user of `llm` added: a file of names and where they are loaded from."""

import json
from pathlib import Path

DEFAULT = "mlxspec"
"""The name of the default model."""

_FILE = "mlxspec-models.json"


def read_sources(folder: Path) -> dict[str, str | None]:
    """Return where each model is loaded from, by its name; the default model comes first.

    `folder` is where `llm` keeps what belongs to the user. A damaged file raises `ValueError`.
    """
    path = folder / _FILE
    if not path.exists():
        return {DEFAULT: None}
    try:
        found = json.loads(path.read_bytes())
        if not all(isinstance(at, str) for at in found.values()):
            raise TypeError("a source is a text")
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no list of models: mend it, or delete it") from error
    return {DEFAULT: None, **found}


def add_source(folder: Path, source: str) -> str:
    """Add a model and return its name: that of its folder, file or repository."""
    known = read_sources(folder)
    place = Path(source).expanduser()
    source = str(place.absolute()) if place.exists() else source
    last = source.rstrip("/").rpartition("/")[2]
    if not last:
        raise ValueError("name a folder, a GGUF file or a hub id")
    name = f"{DEFAULT}/{last}"
    if known.get(name, source) != source:
        raise ValueError(f"{name} is {known[name]}: rename one of the two folders")
    stored = {**{own: at for own, at in known.items() if at is not None}, name: source}
    (folder / _FILE).write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")
    return name
