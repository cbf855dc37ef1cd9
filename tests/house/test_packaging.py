"""One wheel with all that a stranger needs and nothing else; versions stand in one place each."""

import re
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pip._internal.models.index import PyPI

import mlxspec
from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
PACKAGES = {  # and where they lie
    "mlxspec": "mlxspec",
    "mlxspec_app": "app/mlxspec_app",
    "mlxspec_cli": "app/mlxspec_cli",
    "mlxspec_server": "app/mlxspec_server",
}


@pytest.fixture(scope="module")
def wheel():
    """{path in the wheel: path here} of all files but the metadata."""
    files = WheelBuilder(str(ROOT)).recurse_included_files()
    return {file.distribution_path: Path(file.path) for file in files}


def files_below(folder):
    return {path.relative_to(ROOT / folder).as_posix() for path in (ROOT / folder).rglob("*.*")}


# ---- the version ---------------------------------------------------------------------------


def test_the_version_is_written_once_and_the_wheel_has_it():
    written = re.findall(
        r'^__version__ = "(.+)"$', (ROOT / "mlxspec/__init__.py").read_text(), re.M
    )
    assert written == [mlxspec.__version__] == [WheelBuilder(str(ROOT)).metadata.version]
    assert "version" not in PROJECT


def test_the_changelog_begins_with_what_is_unreleased_and_has_the_version():
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert mlxspec.__version__ in {heading.split(" ")[0] for heading in headings[1:]}


# ---- the wheel -----------------------------------------------------------------------------


def test_the_wheel_holds_the_packages_whole(wheel):
    for package, folder in PACKAGES.items():
        sources = {
            f"{package}/{name}"
            for name in files_below(folder)
            if name.endswith((".py", ".typed", ".tcss", ".sql", ".jsonl", ".html", ".js", ".css"))
        }
        assert f"{package}/py.typed" in sources
        assert sources <= set(wheel), sources - set(wheel)


def test_the_wheel_holds_the_drafters_of_the_default_model(wheel):
    drafters = {name for name in wheel if name.startswith("mlxspec/assets/drafters/")}
    assert {Path(name).name for name in drafters} == files_below("assets/drafters")
    assert 20e6 < sum(wheel[name].stat().st_size for name in drafters) < 30e6


def test_the_wheel_holds_nothing_else(wheel):
    others = {name for name in wheel if name.split("/")[0] not in PACKAGES}
    assert others == set()
    assets = {name.removeprefix("mlxspec/assets/") for name in wheel if "/assets/" in name}
    recordings = {"chat.jsonl", "code.jsonl", "code-plain.jsonl"}
    assert {name.split("/")[0] for name in assets} == {*recordings, "drafters", "recipes", "seed"}
    assert not [name for name in wheel if re.search(r"test_|conftest|__pycache__|\.svg$", name)]


# ---- what it stands on ---------------------------------------------------------------------


def requirements():
    """Every requirement, those of extras included, as (name, extras, what uv.lock says of it)."""
    named = [("", line) for line in PROJECT["dependencies"]]
    named += [(e, line) for e, lines in PROJECT["optional-dependencies"].items() for line in lines]
    for extra, line in named:
        found = Requirement(line)
        marker = str(found.marker).replace('"', "'") if found.marker else ""
        marker = f"extra == '{extra}'" if extra else marker
        yield canonicalize_name(found.name), found.extras, marker, found.specifier


def test_the_lock_is_of_these_requirements():
    (ours,) = (package for package in LOCK if package["name"] == "mlxspec")
    locked = {
        (row["name"], frozenset(row.get("extras", ())), row.get("marker", ""), row["specifier"])
        for row in ours["metadata"]["requires-dist"]
    }
    stated = {(name, frozenset(extras), marker) for name, extras, marker, _ in requirements()}
    assert {row[:3] for row in locked} == stated, "run `uv lock`"
    versions = {(name, str(specifier)) for name, *_, specifier in requirements()}
    assert {
        (name, str(Requirement(name + text).specifier)) for name, *_, text in locked
    } == versions


def test_the_lock_has_a_version_that_each_requirement_allows():
    locked = {}
    for package in LOCK:
        locked.setdefault(package["name"], []).append(package.get("version"))
    for name, _, _, specifier in requirements():
        assert locked[name], name
        assert all(specifier.contains(version) for version in locked[name]), name


def test_the_lock_names_the_public_index_alone():
    addresses = re.findall(r'"(\w+://[^"]+)"', (ROOT / "uv.lock").read_text())
    hosts = {urlsplit(address).netloc for address in addresses}
    assert hosts == {PyPI.netloc, PyPI.file_storage_domain}
    assert {urlsplit(address).scheme for address in addresses} == {"https"}


def test_the_linters_are_pinned_and_make_installs_these():
    pins = PROJECT["optional-dependencies"]["lint"]
    assert {re.fullmatch(r"(\w+)==[\d.]+", pin)[1] for pin in pins} == {"mypy", "ruff"}
    assert "--editable '.[lint]'" in (ROOT / "Makefile").read_text()
