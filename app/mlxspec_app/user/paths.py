"""Where the app keeps things: the store of chats, what was learned, settings, traces, logs.

Each lies where the platform puts its kind. One folder for all of them can be named instead, by
`--data-dir` or by `MLXSPEC_HOME`, which also moves the downloads of the library.
"""

import os
from dataclasses import dataclass
from os import PathLike
from os.path import expanduser
from pathlib import Path

from platformdirs import user_config_path, user_data_path, user_log_path


@dataclass(frozen=True)
class Places:
    """Files and folders of the app; none of them needs to exist.

    Attributes:
        store: The database of chats.
        learned: Folder of what drafters learned from the chats.
        settings: The settings file.
        traces: Folder of the recorded replies.
        logs: Folder of the logs.
    """

    store: Path
    learned: Path
    settings: Path
    traces: Path
    logs: Path


def find_places(data_dir: str | PathLike[str] | None = None) -> Places:
    """Return the places: below `data_dir`, else below `MLXSPEC_HOME`, else the platform's own.

    Args:
        data_dir: What `--data-dir` names; `~` stands for the home folder.
    """
    chosen = os.fspath(data_dir) if data_dir else os.environ.get("MLXSPEC_HOME")
    if chosen:
        folder = Path(expanduser(chosen)).absolute()
        return _places(data=folder, config=folder, logs=folder / "logs")
    name = "mlxspec"
    return _places(
        data=user_data_path(name, appauthor=False),
        config=user_config_path(name, appauthor=False),
        logs=user_log_path(name, appauthor=False),
    )


def _places(data: Path, config: Path, logs: Path) -> Places:
    return Places(
        store=data / "chats.sqlite3",
        learned=data / "learned",
        settings=config / "settings.toml",
        traces=data / "traces",
        logs=logs,
    )
