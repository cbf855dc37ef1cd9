"""What the pages of docs name is there: files, commands, words of the source, and each other."""

import re
import shlex
from functools import cache
from importlib.util import find_spec

from mlxspec_cli.parser import build_parser
from tests.house.sources import sources, text_of
from tests.house.test_imports import FLOORS
from tests.support.paths import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")

DOCUMENTS = [*sorted(ROOT.glob("*.md")), *PAGES]


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
def words_of_the_source():
    product = map(text_of, sources("mlxspec", "app").values())
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
    paths = sources("mlxspec", "app", "tests", "docs/examples")
    return (ROOT / name).is_file() or any(f"/{path}".endswith(whole) for path in paths)


def test_every_file_and_folder_that_a_page_names_exists():
    named = {
        (page.stem, span)
        for page in PAGES
        for span in code_spans(page)
        if re.fullmatch(r"[\w./-]+(/|\.py)", span)
    }
    assert [(page, name) for page, name in named if not is_there(name)] == []


def leads_somewhere(page, link):
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    return target.exists() and (not anchor or anchor in anchors(target))


def test_every_link_leads_somewhere():
    links = [
        (page, link)
        for page in DOCUMENTS
        for link in LINK.findall(FENCE.sub("", page.read_text()))
        if "://" not in link
    ]
    lost = [f"{page.name}: {link}" for page, link in links if not leads_somewhere(page, link)]
    assert lost == []


@cache
def parser():
    return build_parser()


def parses(arguments):
    """Whether the command line takes these arguments."""
    try:
        parser().parse_args(arguments)
    except SystemExit as leaving:
        return leaving.code == 0
    return True


def can_be_given(command):
    match command:
        case ["mlxspec", "COMMAND", *_]:
            return True
        case ["mlxspec", name]:  # a sentence names it without its arguments
            return parses([name, "--help"])
        case ["mlxspec", *arguments]:
            return parses(arguments)
        case ["python" | ".venv/bin/python", "-m", module, *_]:
            return find_spec(module) is not None
        case ["python" | ".venv/bin/python", script, *_] if script.endswith(".py"):
            return is_there(script)
        case ["make", goal]:
            return f"\n{goal}:" in (ROOT / "Makefile").read_text()
    return True


def test_every_command_of_a_page_can_be_given(capsys):
    wrong = [
        f"{page.name}: {shlex.join(command)}"
        for page in DOCUMENTS
        for command in commands(page)
        if not can_be_given(command)
    ]
    assert wrong == []


def test_python_on_a_page_is_that_of_a_script_or_of_the_source():
    pages = [page for page in PAGES if page.stem != "python"]  # that one runs as it stands
    found = [(page.name, block) for page in pages for block in blocks(page, "python")]
    texts = [*map(text_of, sources("mlxspec", "app", "tests", "docs/examples").values())]
    assert [
        (page, block) for page, block in found if not any(block in text for text in texts)
    ] == []


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
