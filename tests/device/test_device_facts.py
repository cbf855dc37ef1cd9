"""The facts of a device that tests can choose: in this process and in those that it starts."""

import os
import subprocess
import sys

from mlxspec.device import backend, core_split
from tests.support.device_facts import SITE, believe_everywhere

ASK = """
import sys
from mlxspec.device import backend
assert "mlx.core" not in sys.modules
print(backend.is_cpu(), backend.lacks_accelerate(), backend.num_lanes())
"""


def facts():
    return backend.is_cpu(), backend.lacks_accelerate()


def test_a_gpu_s_facts_close_the_lanes(gpu):
    assert facts() == (False, False)
    assert core_split.count() == 0


def test_a_cpu_s_facts_hold_wherever_the_suite_runs(cpu):
    assert facts() == (True, sys.platform != "darwin")


def test_without_either_the_facts_are_those_of_the_option(pytestconfig):
    if pytestconfig.getoption("--device-facts") == "gpu":
        assert facts() == (False, False)
        assert str(SITE) in os.environ["PYTHONPATH"]
    else:
        assert facts() == (backend._device()[1] == "cpu", facts()[0] and sys.platform != "darwin")


def test_processes_of_the_suite_have_its_facts_and_import_nothing_earlier(monkeypatch):
    for module, name in (
        (backend, "is_cpu"),
        (backend, "lacks_accelerate"),
        (core_split, "_lanes"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))  # so that all is taken back
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    believe_everywhere()
    assert facts() == (False, False)
    assert os.environ["PYTHONPATH"].split(os.pathsep)[1:] == ["/somewhere"]
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "0"]


def test_float32_is_multiplied_as_float32():
    """Also by a GPU that would take ten bits of each number."""
    assert os.environ["MLX_ENABLE_TF32"] == "0"
