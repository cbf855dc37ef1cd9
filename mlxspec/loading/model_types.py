"""Which types of models can be run: those of our ports, and those for which mlx-lm has a file.

The source of mlx-lm is read, not imported: an import takes a second in every thread that lists
models.
"""

import ast
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from mlxspec.models.config import FAMILIES

_MODEL = re.compile(r"^class Model\(|^from \S+ import .*\bModel\b", re.MULTILINE)
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,99}")  # strict, because the type also becomes a file name


def is_runnable(kind: object) -> bool:
    """Return whether a `model_type` of a config.json can be run, by our ports or by mlx-lm."""
    return isinstance(kind, str) and (kind in FAMILIES or is_in_mlx_lm(kind))


@cache
def is_in_mlx_lm(kind: str) -> bool:
    """Return whether mlx-lm has a model file for a type."""
    folder = _folder()
    if folder is None or not _NAME.fullmatch(kind):
        return False
    file = folder / "models" / f"{kind}.py"
    if file.is_file():
        return _MODEL.search(file.read_text(encoding="utf-8")) is not None
    return kind in _renamed(folder)


def _folder() -> Path | None:
    spec = find_spec("mlx_lm")
    places = spec.submodule_search_locations if spec is not None else None
    return Path(places[0]) if places else None


@cache
def _renamed(folder: Path) -> frozenset[str]:
    """Return the types that mlx-lm's files cover under another name."""
    for statement in ast.parse((folder / "utils.py").read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict):
            names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
            if "MODEL_REMAPPING" in names:
                return frozenset(ast.literal_eval(statement.value))
    return frozenset()
