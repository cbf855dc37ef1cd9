"""The sampling params that the authors of a model recommend: its `generation_config.json`.

The library does not apply them by itself: a reply without settings is greedy. A chat starts with
them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlxspec.loading.folder import generation_config
from mlxspec.params.table import SAMPLING

_STATED = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
_RANGES = {row.name: row.range for row in SAMPLING if row.name in _STATED}


def recommended_sampling(
    path: Path, say: Callable[[str], None] = lambda line: None
) -> dict[str, float]:
    """Return the recommended sampling params of a model by name; {} if none are stated.

    A file that turns sampling off recommends temperature 0. A file that states only filters has
    temperature 1, as in Hugging Face. A value that is out of range is left out. A GGUF file states
    none. `say` is called with one line about a file that cannot be read.
    """
    stated = generation_config(path, say)
    if stated.get("do_sample") is False:
        return {"temperature": 0.0}
    found = {name: stated[name] for name in _STATED if _is_usable(name, stated.get(name))}
    return {"temperature": 1.0, **found} if found else {}


def _is_usable(name: str, value: Any) -> bool:
    return value is not None and _RANGES[name].fits(value)
