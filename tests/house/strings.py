"""Every string that a user can see.

A string counts if it reads as words, and is no docstring, style or query. Values inside a string
stand as {…}. The scripts of the shareable page are not Python, so they are left out.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.house.sources import sources, tree_of

_FOLDERS = ("app/mlxspec_cli", "app/mlxspec_app", "mlxspec")
_NOT_FOR_USERS = ("app/mlxspec_app/bench",)
_WORDS = re.compile(r"[A-Za-z]{2,}[,;:.]? +\W?[A-Za-z{]")
_LABELS = {"_shown": 3, "_hidden": 3, "Binding": 2, "Part": 0, "Definition": 0, "View": 1, "Key": 1}
"""Calls with an argument that is shown even if it is one word."""
_NO_WORDS = re.compile(
    r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|DROP|WITH|WHERE|BEGIN|ALTER) "  # queries
    r"|\$|(bold|italic|underline)\b|[@:]\w*[({ -]|g\{|text\{|\^"  # styles, patterns
)


@dataclass(frozen=True)
class Said:
    """A string of the program.

    Attributes:
        path: Its file, from the root of the repository.
        function: The function or class that it stands in; "" for the module.
        text: The string, with {…} for values.
    """

    path: str
    function: str
    text: str


@cache
def strings() -> list[Said]:
    """Return all strings that a user can see, in the order of the source."""
    return [
        said
        for name, path in sources(*_FOLDERS).items()
        if not name.startswith(_NOT_FOR_USERS)
        for said in _walk(tree_of(path), name, "")
    ]


def _walk(node: ast.AST, path: str, function: str) -> Iterator[Said]:
    labels = _labels(node)
    for child in ast.iter_child_nodes(node):
        if _is_docstring(child) or _is_style_sheet(child) or _is_annotation(node, child):
            continue
        text = _text(child)
        if text is not None:
            if (_WORDS.search(text) or child in labels) and not _NO_WORDS.match(text):
                yield Said(path, function, text)
            continue
        is_named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        name = ".".join(filter(None, (function, child.name))) if is_named else function
        yield from _walk(child, path, name)


def _labels(node: ast.AST) -> list[ast.AST]:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        return []
    index = _LABELS.get(node.func.id)
    return [] if index is None else list(node.args[index : index + 1])


def _text(node: ast.AST) -> str | None:
    """Return a string with {…} for its values; None for what is no string."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "{…}" for part in node.values)
    return None


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and _text(node.value) is not None


def _is_style_sheet(node: ast.AST) -> bool:
    is_one = isinstance(node, ast.Assign | ast.AnnAssign)
    targets = [getattr(node, "target", None), *getattr(node, "targets", [])] if is_one else []
    return any(isinstance(each, ast.Name) and each.id.endswith("CSS") for each in targets)


def _is_annotation(node: ast.AST, child: ast.AST) -> bool:
    return child in (getattr(node, "annotation", None), getattr(node, "returns", None))
