"""The verdicts of this machine on models of mlx-lm, stored so that each is examined once.

The key of a verdict consists of the type, its source, its arguments, the versions and the device. A
note also links each loaded folder or file to its key, so that lists of models can show the verdict
without loading the model. A note is ignored if the versions or the file have changed since.
"""

from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import cast, get_args

from mlxspec.adapted.verdict import Verdict
from mlxspec.device import backend
from mlxspec.loading.folder import CONFIG
from mlxspec.loading.records import Records
from mlxspec.models import DraftSupport

_RECORDS, _PLACES = Records("admitted.json"), Records("admitted_places.json")
_PACKAGES = ("mlx", "mlx-lm")


def conditions() -> str:
    """Return what every verdict depends on: the versions and the device."""
    versions = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    own = "mlxspec " + cast(str, import_module("mlxspec").__version__)
    return f"{versions}, {own}, {backend.facts().device}"


def load(key: str) -> Verdict | None:
    """Return the verdict of a key; None if there is none, or a damaged one."""
    with suppress(TypeError):
        verdict = Verdict(**(_RECORDS.load(key) or {}))
        is_known = verdict.support in (*get_args(DraftSupport), None)
        numbers = (verdict.error, verdict.seconds)
        if is_known and isinstance(verdict.reason, str) and all(map(_is_number, numbers)):
            return verdict
    return None


def store(key: str, verdict: Verdict) -> None:
    """Keep a verdict under a key."""
    _RECORDS.store(key, asdict(verdict))


def note(place: Path, key: str) -> None:
    """Note that the verdict of a key holds for the model in a folder or file."""
    if (stamp := _stamp(place)) and _PLACES.load(stamp) != {"key": key}:
        _PLACES.store(stamp, {"key": key})


def at(place: Path) -> Verdict | None:
    """Return the verdict on the model in a folder or file; None if it has to be examined."""
    key = (_PLACES.load(_stamp(place)) or {}).get("key")
    is_of_today = isinstance(key, str) and key.endswith(conditions())
    return load(str(key)) if is_of_today else None


def all_verdicts() -> dict[str, Verdict]:
    """Return the verdicts of this machine, by key."""
    found = {key: load(key) for key in _RECORDS.all_keys()}
    return {key: verdict for key, verdict in found.items() if verdict is not None}


def clear() -> None:
    """Delete all verdicts: each model is examined again when it is loaded."""
    _RECORDS.clear()
    _PLACES.clear()


def _stamp(place: Path) -> str:
    """Return the path and time of the file that defines the model; "" if it is gone."""
    file = place / CONFIG if place.is_dir() else place
    with suppress(OSError):
        return f"{file.resolve()} {file.stat().st_mtime_ns}"
    return ""


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))
