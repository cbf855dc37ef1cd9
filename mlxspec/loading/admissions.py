"""What this machine admitted models of mlx-lm for, stored so that each is examined once.

A note links each loaded folder or file to the key of its admission, so that lists of models can
show it without loading the model. A note is ignored if versions or the file have changed since.
"""

from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import cast, get_args

from mlxspec.adapted.config import Admission
from mlxspec.device import backend
from mlxspec.loading.folder import CONFIG
from mlxspec.loading.records import Records
from mlxspec.models import DraftSupport

_RECORDS, _PLACES = Records("admitted.json"), Records("admitted_places.json")


def conditions() -> str:
    """Return what every admission depends on: the versions and the device."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("mlx", "mlx-lm"))
    own = "mlxspec " + cast(str, import_module("mlxspec").__version__)
    return f"{versions}, {own}, {backend.facts().device}"


def stored() -> dict[str, Admission]:
    """Return the admissions of this machine, by key."""
    found = {key: load(key) for key in _RECORDS.all_keys()}
    return {key: admission for key, admission in found.items() if admission is not None}


def load(key: str) -> Admission | None:
    """Return the admission of a key; None if there is none, or a damaged one."""
    with suppress(TypeError):
        found = Admission(**(_RECORDS.load(key) or {}))
        is_known = found.support in (*get_args(DraftSupport), None)
        are_numbers = all(isinstance(x, int | float) for x in (found.error, found.seconds))
        return found if is_known and are_numbers and isinstance(found.reason, str) else None
    return None


def store(key: str, admission: Admission) -> None:
    """Keep an admission under a key."""
    _RECORDS.store(key, asdict(admission))


def note(place: Path, key: str) -> None:
    """Note that the admission of a key holds for the model in a folder or file."""
    if (stamp := _stamp(place)) and _PLACES.load(stamp) != {"key": key}:
        _PLACES.store(stamp, {"key": key})


def at(place: Path) -> Admission | None:
    """Return the admission of the model in a folder or file; None if it has to be examined."""
    key = (_PLACES.load(_stamp(place)) or {}).get("key")
    is_of_today = isinstance(key, str) and key.endswith(conditions())
    return load(str(key)) if is_of_today else None


def clear() -> None:
    """Delete all admissions: each model is examined again when it is loaded."""
    _RECORDS.clear()
    _PLACES.clear()


def _stamp(place: Path) -> str:
    """Return what a note is filed under: the path and the time of its last change."""
    file = place / CONFIG if place.is_dir() else place
    with suppress(OSError):
        return f"{file.resolve()} {file.stat().st_mtime_ns}"
    return ""
