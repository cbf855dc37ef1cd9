"""Fakes the kind of device that mlxspec detects, independent of the device that MLX uses.

Code that depends on the device asks `backend` for two facts. A test can set them to those of a GPU
or a CPU on any machine, and `pytest --device-facts gpu` runs the whole suite with those of a GPU.
What MLX really computes on is its default device; `pytest --device cpu` makes that the CPU.
"""

import os
import sys
from contextlib import contextmanager
from dataclasses import replace

import mlx.core as mx
import pytest

from mlxspec.device import backend, core_split
from tests.support.paths import TESTS

SITE = TESTS / "gpu_facts"
CPU_SITE = TESTS / "cpu_device"


def believe(kind, setattr_):
    """Make mlxspec believe that MLX computes on a "cpu" or a "gpu".

    Args:
        kind: "cpu" or "gpu".
        setattr_: Sets an attribute of an object; the caller undoes it.
    """
    is_cpu = kind == "cpu"
    setattr_(backend, "is_cpu", lambda: is_cpu)
    setattr_(backend, "lacks_accelerate", lambda: is_cpu and sys.platform != "darwin")
    setattr_(core_split, "_split", core_split._CoreSplit())  # how many there are was found out once


def believe_chip(device, setattr_):
    """Make mlxspec believe that MLX computes on the GPU of a chip, such as "Apple M1 Max"."""
    believe("gpu", setattr_)
    facts = replace(backend.facts(), device=device, backend="metal")
    setattr_(backend, "facts", lambda: facts)


@contextmanager
def believed(kind):
    """Fake the kind of device for a while, for example while a model is loaded in float32."""
    with pytest.MonkeyPatch.context() as patch:
        believe(kind, patch.setattr)
        yield


def believe_everywhere():
    """Let this process and those that it starts believe that MLX computes on a GPU."""
    believe("gpu", setattr)
    _put_on_path(SITE)


def compute_on_cpu_everywhere():
    """Let MLX compute on the CPU, in this process and in those that it starts."""
    mx.set_default_device(mx.cpu)
    _put_on_path(CPU_SITE)


def _put_on_path(drafter_context):
    sys.path.append(str(drafter_context))  # some tests pass this list on
    others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(drafter_context), *others]))
