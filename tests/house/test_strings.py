"""The program speaks in the words that people use.

A string counts if it reads as words, and is no docstring, style or query. The scripts of the
shareable page are not Python, so they are left out.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.house.sources import sources, text_of, tree_of
from tests.support.paths import ROOT

NOT_SAID = {
    r"differently": "edit",
    r"begin (an empty|a new) (chat|one)|starts? anew": "start a new chat",
    r"go(es)? on with": "continue, resume",
    r"(chat|message|round|phase|version) before (this|it)\b": "the previous one",
    r"\bthe (hit|message|round|phase|version) (before|after|above|below)\b": "previous, next",
    r"left out, ": "defaults to",
    r"\ball the same": "anyway",
    r"\bfor good\b|\bfor now; ": "in this session; keeps",
    r"look for words": "search",
    r"something else": "rename",
    r"any more\b": "no longer",
    r"is there already|are there already": "already exists",
    r"\bmend\b": "fix",
    r"(?<!--)\bfetch(es|ed|ing)?\b": "download",
    r"\bfilm\b|moving picture": "screencast, animated picture",
    r"brings? (it|them|him) back": "restores",
    r"(?<!there) is no (model|folder|file|list|text|arm|corpus|table|report|page)\b": "is not",
    r"\bspec(ulation)? (off|costs)": "guessing",
    r"tok/s": "tokens/s",
    r"x faster|x as fast|times (as fast|the speed|plain)|\u00d7.* plain": "1.7x the speed",
    r"guessed right": "guessed",
    r"have .* back\b": "restore",
    r"\bbroke off\b": "was cut off",
    r"\bblocks? of code\b": "code block",
    r"\bsaid in this chat\b": "has messages",
    r"\b(main|assistant) model\b|\bhit rate\b|\bspeculator\b": "see docs/glossary.md",
}
"""Patterns that a native speaker or a newcomer would stumble over, and what we say."""


OLD = {
    r"\bwhoever\b|\bhas[ _]a?_?say\b|\bwho comes late\b": "name the actor",
    r"\bwhatever drafts\b": "for every drafter",
    r"\bso (many|often) [`\w]+\b": "this many",
    r"\bas far as\b": "the part that",
    r"\bat the begin\b": "at the start",
    r"\bhold for these alone\b": "are valid only for this setup",
    r"\bwere not told of\b": "is not supported with",
    r"\bis a decay\b": "must be between",
    r"\b(Heard|Audience|Doorbell|Abilities|SeparateDecoders|Seats)\b": "see docs/glossary.md",
}
"""Words that the code and the pages once had, and what they say now."""


_FOLDERS = ("app/mlxspec_cli", "app/mlxspec_app", "mlxspec")
_NOT_FOR_USERS = ("app/mlxspec_app/bench",)
_WORDS = re.compile(r"[A-Za-z]{2,}[,;:.]? +\W?[A-Za-z{]")
_LABELS = {"_shown": 3, "_hidden": 3, "Binding": 2, "Part": 0, "Definition": 0, "View": 1, "Key": 1}
"""Calls with an argument that is shown even if it is one word."""
_WITHOUT_TEXT = (ast.Name, ast.alias, ast.expr_context, ast.operator, ast.cmpop, ast.Import)
_NO_WORDS = re.compile(
    r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|DROP|WITH|WHERE|BEGIN|ALTER) "  # queries
    r"|\$|(bold|italic|underline)\b|[@:]\w*[({ -]|g\{|text\{|\^"  # styles, patterns
)


@dataclass(frozen=True)
class Said:
    """A string of the program, with {…} for values, and the function or class it stands in."""

    path: str
    function: str
    text: str


@cache
def strings() -> list[Said]:
    """All strings that a user can see, in the order of the source."""
    return [
        said
        for name, path in sources(*_FOLDERS).items()
        if not name.startswith(_NOT_FOR_USERS)
        for said in _walk(tree_of(path), name, "")
    ]


def _walk(node: ast.AST, path: str, function: str) -> Iterator[Said]:
    labels = _labels(node)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _WITHOUT_TEXT):
            continue
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


def test_old_words_stand_nowhere():
    any_of_them = re.compile("|".join(OLD), re.IGNORECASE)
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    paths = [*pages, *ROOT.glob("docs/**/*.md"), *sources("mlxspec", "app").values()]
    assert len(paths) > 100
    found = {path: old[0] for path in paths if (old := any_of_them.search(text_of(path)))}
    assert found == {}


def test_the_program_says_what_people_say():
    any_of_them = re.compile("|".join(NOT_SAID), re.IGNORECASE)
    assert [said for said in strings() if any_of_them.search(said.text)] == []


def test_words_of_every_kind_are_found():
    path = "app/mlxspec_app/commands.py"
    said = strings()
    assert Said(path, "", "start a new chat") in said  # an argument of a table
    assert Said("app/mlxspec_app/settings/keys/tables.py", "", "Help") in said  # a key of one word
    assert any("tokens/s" in each.text and "{…}" in each.text for each in said)  # with a value
    assert not any("height: auto" in each.text for each in said)  # a style sheet
    assert not any(each.text.startswith("Return ") for each in said)  # a docstring
