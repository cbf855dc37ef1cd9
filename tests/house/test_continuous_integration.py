"""The workflow runs what is there, for every Python and system that is promised."""

import os
import re
import subprocess
import tomllib

import yaml

from tests.support.device_facts import CPU_SITE
from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
JOBS = WORKFLOW["jobs"]
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
    assert set(JOBS) == {"lint", "tests", "wheel", "metal"}


def test_what_the_workflow_runs_is_there():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    suites = {*MATRIX["suite"], *(row["suite"] for row in MATRIX["include"])}
    assert suites | {"lint"} <= targets
    assert {
        [step["run"] for step in job["steps"] if "run" in step][-1] for job in JOBS.values()
    } == {
        "make lint PYTHON=python",
        "make ${{ matrix.suite }} PYTHON=python",
        ".ci/wheel",
        ".ci/metal",
    }
    cpu_context = CPU_SITE.relative_to(ROOT).as_posix()
    assert f"/{cpu_context}'" in JOBS["wheel"]["steps"][-1]["env"]["PYTHONPATH"]
    assert all(os.access(ROOT / ".ci" / name, os.X_OK) for name in ("wheel", "metal"))


def test_the_job_of_a_mac_computes_on_its_gpu_and_can_be_run_alone():
    run, upload = JOBS["metal"]["steps"][-2:]
    assert JOBS["metal"]["runs-on"].startswith("macos")
    assert run["env"] == {"PYTHON": "python"}  # and nothing that chooses the CPU
    asked = WORKFLOW[True]["workflow_dispatch"]["inputs"]["only"]  # YAML takes `on` for a truth
    assert "metal" in asked["options"]
    alone = {name for name, job in JOBS.items() if job.get("if") != "inputs.only != 'metal'"}
    assert alone == {"metal"}
    assert (upload["if"], upload["with"]["path"]) == ("always()", "metal-report")


def test_the_parts_of_the_job_of_a_mac_are_there():
    script = (ROOT / ".ci" / "metal").read_text()
    (default,) = re.findall(r"in \$\{\*:-([\w ]+)\}", script)
    assert default.split() == re.findall(r"^(\w+)\(\)", script, re.MULTILINE)
    named = re.findall(r"tests/[\w/]+\.py(?:::\w+)?", script)
    assert len(named) == 4
    for path, _, test in (name.partition("::") for name in named):
        assert f"def {test}" in (ROOT / path).read_text(encoding="utf-8")


def test_scripts_can_be_read_by_bash_and_configurations_as_yaml():
    scripts = sorted((ROOT / ".ci").iterdir())
    told = [subprocess.run(["bash", "-n", path], capture_output=True).stderr for path in scripts]
    assert told == [b""] * len(scripts)
    for path in [*ROOT.glob(".github/**/*.yml"), ROOT / ".pre-commit-config.yaml"]:
        assert isinstance(yaml.safe_load(path.read_text()), dict), path
