"""The machine: chip, system, memory, libraries, and the settings in force."""

import os
import platform
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from mlxspec import __version__
from mlxspec.device import backend, core_split
from mlxspec.report.allowance import Allowance, Finding

_PACKAGES = ("mlx", "mlx-lm", "numpy", "textual")
_SETTINGS = ("MLX_MAX_OPS_PER_BUFFER", "MLX_MAX_MB_PER_BUFFER", "MLX_ENABLE_TF32", "MLXSPEC_WIRED")


def measure(time: Allowance) -> Iterator[Finding]:
    """Yield the facts about the machine."""
    facts = backend.facts()
    yield "device", facts.device
    yield "backend", facts.backend
    yield "system", facts.system
    yield "macos", platform.mac_ver()[0]
    yield "python", facts.python
    yield "mlxspec", __version__
    yield "packages", {name: _version(name) for name in _PACKAGES}
    yield "blas", facts.blas
    yield "cores", facts.cores
    yield "core_split", core_split.count()
    yield "memory_gb", facts.memory_gb
    yield from _of_the_device()
    yield "settings", {name: os.environ[name] for name in _SETTINGS if name in os.environ}
    yield "power", _power()


def _of_the_device() -> Iterator[Finding]:
    import mlx.core as mx

    told = mx.device_info()
    for name, unit in (("max_recommended_working_set_size", 1e9), ("max_buffer_length", 1e9)):
        if name in told:
            yield name + "_gb", float(told[name]) / unit
    yield "architecture", str(told.get("architecture", ""))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _power() -> str:
    """Return the power source of a Mac; on battery the machine may be slower."""
    try:
        told = subprocess.check_output(["pmset", "-g", "batt"], text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return ""
    return "battery" if "Battery Power" in told.partition("\n")[0] else "mains"
