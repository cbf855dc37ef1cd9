"""The site has every page, and its reference names what is there; the build looks at the links."""

import re
from pkgutil import resolve_name

import yaml

from tests.support.paths import ROOT

SITE = ROOT / "docs" / "site"
CONFIG = yaml.safe_load((SITE / "mkdocs.yml").read_text(encoding="utf-8"))
REFERENCE = (SITE / "pages" / "reference.md").read_text(encoding="utf-8")
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/site.yml").read_text(encoding="utf-8"))
MADE = {"docs/manual.md", "docs/examples/README.md"}  # while the site is built


def pages(nav):
    """The pages of a navigation, those of its parts included."""
    for entry in nav:
        for page in entry.values():
            yield from [page] if isinstance(page, str) else pages(page)


def test_the_navigation_has_every_page_once_and_no_other():
    listed = list(pages(CONFIG["nav"]))
    assert len(set(listed)) == len(listed)
    documents = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert documents | {"README.md", "CHANGELOG.md", "assets/drafters/README.md"} <= set(listed)
    lost = [p for p in listed if not any((top / p).exists() for top in (ROOT, SITE / "pages"))]
    assert set(lost) <= MADE <= set(listed)


def test_the_reference_names_what_is_there():
    named = re.findall(r"^::: (\S+)$", REFERENCE, re.MULTILINE)
    assert len(named) > 10
    for name in named:
        found = resolve_name(name)
        for member in members(name):
            assert getattr(found, member).__doc__, f"{name}.{member}"


def members(name):
    """The members that the reference chooses of an entry."""
    entry = REFERENCE.split(f"::: {name}\n")[1].split("\n\n")[0]
    chosen = re.search(r"members: \[(.*)\]", entry)
    return chosen[1].split(", ") if chosen else []


def test_the_site_is_built_in_every_run_and_published_from_main_alone():
    build, publish = WORKFLOW["jobs"]["build"], WORKFLOW["jobs"]["publish"]
    assert "if" not in build
    assert "make site PYTHON=python" in [step.get("run") for step in build["steps"]]
    assert "\nsite: " in (ROOT / "Makefile").read_text()
    assert (publish["needs"], publish["if"]) == ("build", "github.ref == 'refs/heads/main'")
    assert CONFIG["strict"] is True


def test_the_site_asks_nobody_else_for_its_fonts():
    assert CONFIG["theme"]["font"] is False
    assert "://" not in (SITE / "pages" / "site.css").read_text()
