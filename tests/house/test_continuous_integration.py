"""The workflow runs what is there, for every Python and system that is promised."""

import os
import re
import subprocess
import tomllib

import pytest
import yaml

from tests.support.device_facts import CPU_SITE
from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
JOBS = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
MATRIX = JOBS["tests"]["strategy"]["matrix"]


def test_every_supported_python_is_tested_on_both_systems():
    stated = {
        found[1]
        for line in PROJECT["classifiers"]
        if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line))
    }
    assert set(MATRIX["python"]) == stated
    assert PROJECT["requires-python"] == f">={MATRIX['python'][0]}"
    assert [name.split("-")[0] for name in MATRIX["os"]] == ["ubuntu", "macos"]
    assert set(JOBS) == {"lint", "tests", "wheel"}


def test_what_the_workflow_runs_is_there():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    suites = {*MATRIX["suite"], *(row["suite"] for row in MATRIX["include"])}
    assert suites | {"lint"} <= targets
    assert {job["steps"][-1]["run"] for job in JOBS.values()} == {
        "make lint PYTHON=python",
        "make ${{ matrix.suite }} PYTHON=python",
        ".ci/wheel",
    }
    cpu_context = CPU_SITE.relative_to(ROOT).as_posix()
    assert f"/{cpu_context}'" in JOBS["wheel"]["steps"][-1]["env"]["PYTHONPATH"]
    assert os.access(ROOT / ".ci" / "wheel", os.X_OK)


@pytest.mark.parametrize("path", sorted((ROOT / ".ci").iterdir()), ids=lambda path: path.name)
def test_a_script_of_continuous_integration_can_be_read_by_bash(path):
    assert subprocess.run(["bash", "-n", path], capture_output=True, text=True).stderr == ""


@pytest.mark.parametrize(
    "path",
    sorted([*ROOT.glob(".github/**/*.yml"), ROOT / ".pre-commit-config.yaml"]),
    ids=lambda path: path.name,
)
def test_a_configuration_is_yaml(path):
    assert isinstance(yaml.safe_load(path.read_text()), dict)
