"""The workflow runs what is there, for every Python and system that is promised."""

import os
import re
import subprocess
import tomllib

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


def test_scripts_can_be_read_by_bash_and_configurations_as_yaml():
    scripts = sorted((ROOT / ".ci").iterdir())
    told = [subprocess.run(["bash", "-n", path], capture_output=True).stderr for path in scripts]
    assert told == [b""] * len(scripts)
    for path in [*ROOT.glob(".github/**/*.yml"), ROOT / ".pre-commit-config.yaml"]:
        assert isinstance(yaml.safe_load(path.read_text()), dict), path
