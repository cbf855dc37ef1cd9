"""The facts of a device that tests can choose: in this process and in those that it starts."""

import os
import subprocess
import sys

import mlx.core as mx

from mlxspec.device import backend, core_split
from tests.support.device_facts import CPU_SITE, SITE, believe_everywhere, compute_on_cpu_everywhere

ASK = """
import sys
from mlxspec.device import backend
assert "mlx.core" not in sys.modules
print(backend.is_cpu(), backend.lacks_accelerate(), backend.num_split_cores())
"""

ASK_CORE = """
import sys
assert "mlx.core" not in sys.modules
import mlx.core
print(mlx.core.chosen)
"""

# Stands in for MLX where there is another device than the CPU.
OTHER_MLX = """
cpu = "the CPU"
chosen = "a GPU"
def set_default_device(device):
    global chosen
    chosen = device
"""


def facts():
    return backend.is_cpu(), backend.lacks_accelerate()


def test_a_gpu_s_facts_end_the_core_split(gpu):
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
        (core_split, "_split"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))  # so that all is taken back
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    believe_everywhere()
    assert facts() == (False, False)
    assert os.environ["PYTHONPATH"].split(os.pathsep)[1:] == ["/somewhere"]
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "0"]


def test_processes_of_the_suite_compute_on_the_cpu_if_it_does(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "mlx").mkdir()
    (tmp_path / "mlx" / "core.py").write_text(OTHER_MLX)
    device = mx.default_device()
    try:
        compute_on_cpu_everywhere()
        assert mx.default_device() == mx.Device(mx.cpu, 0)
    finally:
        mx.set_default_device(device)
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(CPU_SITE), str(tmp_path)]
    ask = [sys.executable, "-c", ASK_CORE]
    done = subprocess.run(ask, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "the CPU"
