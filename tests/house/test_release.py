"""A tag makes a release: its notes, its formula, and a workflow that tries before it publishes."""

import re
import runpy
import shutil
import subprocess
import tomllib
from hashlib import sha256

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import mlxspec
from tests.support.paths import ROOT

FOLDER = ROOT / "packaging"
NOTES = runpy.run_path(str(FOLDER / "notes.py"))
FORMULA = runpy.run_path(str(FOLDER / "formula.py"))
LOCK_TEXT = (ROOT / "uv.lock").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
JOBS = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]


# ---- the notes -------------------------------------------------------------------------------

CHANGELOG = """# Changelog

## Unreleased

- Next.

## 0.2.0

### Added

- A thing.

## 0.1.0

- The first.

## 0.0.1

"""


def test_the_notes_are_what_the_changelog_says_of_the_version():
    assert NOTES["notes"](CHANGELOG, "v0.2.0", "0.2.0") == "### Added\n\n- A thing."
    assert NOTES["notes"](CHANGELOG, "v0.1.0", "0.1.0") == "- The first."


@pytest.mark.parametrize(
    ("tag", "version", "said"),
    [
        ("v0.3.0", "0.2.0", "tag it v0.2.0, or change __version__"),
        ("0.2.0", "0.2.0", "the tag is 0.2.0"),
        ("v0.0.1", "0.0.1", 'nothing under "## 0.0.1"'),
        ("v9.0.0", "9.0.0", 'nothing under "## 9.0.0"'),
    ],
)
def test_a_tag_that_is_not_the_version_or_has_no_notes_is_refused(tag, version, said):
    with pytest.raises(SystemExit, match=re.escape(said)):
        NOTES["notes"](CHANGELOG, tag, version)


def test_the_version_of_the_package_is_that_of_the_notes():
    assert NOTES["version"]() == mlxspec.__version__


# ---- the formula -----------------------------------------------------------------------------

SMALL_LOCK = """
[[package]]
name = "mlxspec"
dependencies = [
    { name = "deep" },
    { name = "twice", version = "2", marker = "python_full_version >= '3.12'" },
    { name = "penguin", marker = "sys_platform == 'linux'" },
]
[package.optional-dependencies]
serve = [{ name = "server", extra = ["more"] }]
test = [{ name = "tester" }]

[[package]]
name = "deep"
dependencies = [{ name = "metal" }, { name = "deep" }]
wheels = [
    { url = "https://x/1/deep-1-cp313-cp313-manylinux_2_28_x86_64.whl", hash = "sha256:d0" },
    { url = "https://x/1/deep-1-py3-none-any.whl", hash = "sha256:d1" },
    { url = "https://x/1/deep-1-cp313-cp313-macosx_11_0_arm64.whl", hash = "sha256:d2" },
    { url = "https://x/1/deep-1-cp313-cp313-macosx_11_0_x86_64.whl", hash = "sha256:d3" },
    { url = "https://x/1/deep-1-cp312-cp312-macosx_11_0_arm64.whl", hash = "sha256:d4" },
]

[[package]]
name = "metal"
wheels = [
    { url = "https://x/2/metal-1-py3-none-macosx_26_0_arm64.whl", hash = "sha256:m26" },
    { url = "https://x/2/metal-1-py3-none-macosx_14_0_arm64.whl", hash = "sha256:m14" },
]

[[package]]
name = "twice"
version = "1"
resolution-markers = ["python_full_version < '3.12'"]
wheels = [{ url = "https://x/3/twice-1-py3-none-any.whl", hash = "sha256:t1" }]

[[package]]
name = "twice"
version = "2"
resolution-markers = ["python_full_version >= '3.12' and sys_platform == 'darwin'"]
wheels = [{ url = "https://x/3/twice-2-py3-none-any.whl", hash = "sha256:t2" }]

[[package]]
name = "server"
wheels = [{ url = "https://x/4/server-1-py3-none-any.whl", hash = "sha256:s1" }]
[package.optional-dependencies]
more = [{ name = "extra" }]

[[package]]
name = "extra"
wheels = [{ url = "https://x/5/extra-1-cp310-abi3-macosx_11_0_arm64.whl", hash = "sha256:e1" }]
"""


@pytest.fixture
def wheel(tmp_path):
    path = tmp_path / "mlxspec-1.2.3-py3-none-any.whl"
    path.write_bytes(b"a wheel")
    return path


def written(lock_text, wheel):
    lock = tomllib.loads(lock_text)["package"]
    return FORMULA["formula"](lock, wheel, "https://example.org/owner/mlxspec")


def hashes(text):
    return re.findall(r'sha256 "(.+)"', text)


def test_a_formula_has_the_best_wheel_of_each_package_for_each_system_of_a_mac(wheel):
    text = written(SMALL_LOCK, wheel)
    own = sha256(b"a wheel").hexdigest()
    assert hashes(text) == [own, "d2", "e1", "m14", "m14", "m26", "s1", "t2"]
    assert "releases/download/v1.2.3/mlxspec-1.2.3-py3-none-any.whl" in text
    metal = text.partition('resource "metal"')
    systems = re.findall(r"on_\w+.*(?= do)", text)
    assert metal[1]
    assert systems == ["on_sonoma", "on_sequoia", "on_tahoe :or_newer"]


def test_a_package_without_a_wheel_for_a_mac_is_refused_by_name(wheel):
    with pytest.raises(SystemExit, match="extra has no wheel for macOS"):
        written(SMALL_LOCK.replace("abi3-macosx_11_0_arm64", "abi3-win_arm64"), wheel)


def test_the_formula_of_this_lock_has_what_the_project_asks_for(wheel, tmp_path):
    text = written(LOCK_TEXT, wheel)
    asked = [Requirement(line) for line in PROJECT["dependencies"]]
    asked += [Requirement(line) for line in PROJECT["optional-dependencies"]["serve"]]
    on_a_mac = {
        canonicalize_name(need.name)
        for need in asked
        if not need.marker or need.marker.evaluate({"sys_platform": "darwin"})
    }
    named = set(re.findall(r'resource "(.+)" do', text))
    assert on_a_mac | {"mlx-metal"} <= named
    assert not named & {"mlx-cpu", "pytest", "mypy"}
    assert all(f'hash = "sha256:{each}"' in LOCK_TEXT for each in hashes(text)[1:])
    path = tmp_path / "mlxspec.rb"
    path.write_text(text)
    if ruby := shutil.which("ruby"):
        assert subprocess.run([ruby, "-c", path], capture_output=True).returncode == 0


# ---- the workflow ----------------------------------------------------------------------------


def test_a_release_is_built_tried_published_and_described_in_this_order():
    order = ["build", "wheel", "publish", "describe"]
    assert list(JOBS) == order
    assert [JOBS[name].get("needs") for name in order] == [None, *order[:-1]]
    runs = " ".join(step["run"] for job in JOBS.values() for step in job["steps"] if "run" in step)
    named = re.findall(r"packaging/\w+\.py|\.ci/\w+", runs)
    assert named == ["packaging/notes.py", "packaging/formula.py", ".ci/wheel"]
    assert all((ROOT / name).exists() for name in named)


def test_a_job_may_do_only_what_it_is_for():
    rights = {name: job["permissions"] for name, job in JOBS.items() if "permissions" in job}
    assert rights == {"publish": {"id-token": "write"}, "describe": {"contents": "write"}}
