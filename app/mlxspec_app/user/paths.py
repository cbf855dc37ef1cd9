"""Paths of the user's files: the chat store, learned tables, rows, settings, traces, logs.

Each is in the platform's folder for its kind. `--data-dir` or `MLXSPEC_HOME` put all of them into
one folder; `MLXSPEC_HOME` also moves the downloads of the library.
"""

import os
from dataclasses import dataclass
from os import PathLike
from os.path import expanduser
from pathlib import Path

from platformdirs import user_cache_path, user_config_path, user_data_path, user_log_path


@dataclass(frozen=True)
class Paths:
    """Files and folders of the app; none of them needs to exist."""

    store: Path
    learned: Path  # the tables that drafters learned from the chats
    prefixes: Path  # rows of the chats, and of the texts of a server
    unsent: Path  # text that was typed but not sent
    settings: Path
    traces: Path
    logs: Path


def find_paths(data_dir: str | PathLike[str] | None = None) -> Paths:
    """Return the paths: below `data_dir`, else below `MLXSPEC_HOME`, else those of the platform."""
    chosen = os.fspath(data_dir) if data_dir else os.environ.get("MLXSPEC_HOME")
    if chosen:
        data = config = cache = Path(expanduser(chosen)).absolute()
        logs = data / "logs"
    else:
        data = user_data_path("mlxspec", appauthor=False)
        config = user_config_path("mlxspec", appauthor=False)
        cache = user_cache_path("mlxspec", appauthor=False)
        logs = user_log_path("mlxspec", appauthor=False)
    return Paths(
        store=data / "chats.sqlite3",
        learned=data / "learned",
        prefixes=cache / "prefixes",
        unsent=data / "unsent.txt",
        settings=config / "settings.toml",
        traces=data / "traces",
        logs=logs,
    )
