"""What the pages of docs name is there: files, commands, words of the source, and each other."""

import re
import shlex
from functools import cache
from importlib.util import find_spec

import pytest

from mlxspec_cli.parser import build_parser
from tests.house.test_imports import FLOORS
from tests.support.paths import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
each_document = pytest.mark.parametrize(
    "page",
    [*sorted(ROOT.glob("*.md")), *PAGES],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)


def blocks(page, language):
    return [text for name, text in FENCE.findall(page.read_text()) if name == language]


def code_spans(page):
    """What stands between backticks, blocks left out."""
    return re.findall(r"`([^`\n]+)`", FENCE.sub("", page.read_text()))


def commands(page):
    """The command lines of a page: those of its blocks of shell, and those within a sentence."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    found = [shlex.split(line, comments=True) for line in [*lines, *code_spans(page)]]
    return [words for words in found if words[:1] and len(words) > 1]


@cache
def sources():
    """{path from the root: text} of the source, the tests and the examples."""
    folders = ("mlxspec", "app", "tests", "docs/examples")
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


@cache
def words_of_the_source():
    product = [text for path, text in sources().items() if path.startswith(("mlxspec", "app"))]
    return set(re.findall(r"\w+", "\n".join(product)))


def anchors(page):
    """The places of a page that a link can lead to."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def is_there(name):
    """Whether a folder or a Python file, named from the root or by its last parts, exists."""
    whole = f"/{name.rstrip('/')}"
    if name.endswith("/"):
        return (ROOT / name).is_dir()
    return (ROOT / name).is_file() or any(f"/{path}".endswith(whole) for path in sources())


@each_page
def test_every_file_and_folder_that_a_page_names_exists(page):
    named = [span for span in code_spans(page) if re.fullmatch(r"[\w./-]+(/|\.py)", span)]
    assert [name for name in named if not is_there(name)] == []


@each_document
def test_every_link_leads_somewhere(page):
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def parses(arguments):
    """Whether the command line takes these arguments."""
    try:
        build_parser().parse_args(arguments)
    except SystemExit as leaving:
        return leaving.code == 0
    return True


@each_document
def test_every_command_of_a_page_can_be_given(page):
    for command in commands(page):
        match command:
            case ["mlxspec", "COMMAND", *_]:
                pass
            case ["mlxspec", name]:  # a sentence names it without its arguments
                assert parses([name, "--help"]), command
            case ["mlxspec", *arguments]:
                assert parses(arguments), command
            case ["python" | ".venv/bin/python", "-m", module, *_]:
                assert find_spec(module), command
            case ["python" | ".venv/bin/python", script, *_] if script.endswith(".py"):
                assert is_there(script), command
            case ["make", goal]:
                assert f"\n{goal}:" in (ROOT / "Makefile").read_text(), command


@each_page
def test_python_on_a_page_is_that_of_a_script_or_of_the_source(page):
    if page.stem == "python":
        return  # it runs as it stands
    for block in blocks(page, "python"):
        assert any(block in text for text in sources().values()), block


def test_names_in_the_glossary_are_names_of_the_source():
    spans = {span for span in code_spans(DOCS / "glossary.md") if not span.startswith("code ")}
    unknown = {span for span in spans if set(re.findall(r"\w+", span)) - words_of_the_source()}
    assert len(spans) > 100
    assert unknown == set()


def test_the_glossary_defines_a_word_once():
    text = (DOCS / "glossary.md").read_text().partition("## Words that we do not use")[0]
    terms = re.findall(r"^\| ([^|]+?) \|", text, re.MULTILINE)
    defined = [term for term in terms if term not in {"term", "word", "figure", "---"}]
    assert len(set(defined)) == len(defined) > 100


def test_the_index_lists_every_page():
    listed = LINK.findall((DOCS / "README.md").read_text())
    assert {page.name for page in PAGES} - {"README.md"} <= set(listed)


def test_the_architecture_shows_every_folder_and_the_floors_that_hold():
    page = DOCS / "architecture.md"
    packages = [ROOT / "mlxspec", ROOT / "app" / "mlxspec_app", ROOT / "app" / "mlxspec_cli"]
    folders = {path.parent for package in packages for path in package.glob("*/__init__.py")}
    named = {ROOT / span.rstrip("/") for span in code_spans(page)}
    assert folders - named == set()
    (floors,) = blocks(page, "")
    assert [set(line.split(", ")) for line in floors.splitlines()] == FLOORS["mlxspec"]
