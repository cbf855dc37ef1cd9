"""Run before any test is imported: mlxspec must come before mlx.core to choose the BLAS."""

import gc
import os

import pytest
from hypothesis import settings

# The app looks at the terminal for its default theme; the tests see one of all colours.
os.environ["COLORTERM"] = "truecolor"
os.environ.pop("COLORFGBG", None)

import mlxspec  # noqa: F401

from mlxspec.device import backend  # isort: skip
from tests.support.app_pictures import FOLDER, Pictures  # isort: skip
from tests.support.device_facts import (  # isort: skip
    believe,
    believe_everywhere,
    compute_on_cpu_everywhere,
)
from tests.support.slow import is_slow  # isort: skip

# The same examples in every run: a suite that passed stays passed until the code changes.
settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.load_profile("repeatable")


def pytest_addoption(parser):
    parser.addoption(
        "--update-snapshots",
        action="store_true",
        help="write the pictures of tests/app/test_snapshots.py anew instead of comparing them",
    )
    parser.addoption(
        "--device-facts",
        choices=["own", "gpu"],
        default="own",
        help="gpu: what depends on the device does what it would on a GPU, whatever is here",
    )
    parser.addoption(
        "--device",
        choices=["default", "cpu"],
        default="default",
        help="cpu: MLX computes on the CPU, in tests and in the programs that they start",
    )


def pytest_configure(config):
    os.getloadavg = lambda: (0.0, 0.0, 0.0)  # else a busy machine would keep no measurement
    gc.disable()  # searches for garbage took a third of the time in which tests are collected
    if config.getoption("--device") == "cpu":
        compute_on_cpu_everywhere()
    backend.lacks_accelerate()  # kept for the whole process: asked before a test changes a fact
    if config.getoption("--device-facts") == "gpu":
        believe_everywhere()


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items):
    """Mark the slow tests, and run them first, so that no worker waits for the last of them."""
    for item in items:
        if is_slow(item.nodeid):
            item.add_marker("slow")
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop():
    """Leave thousands of collected tests out of the searches for garbage, which begin here."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def pictures(request, tmp_path):
    """Compares screens with their pictures, or writes these anew."""
    return Pictures(FOLDER, tmp_path, renews=request.config.getoption("--update-snapshots"))


@pytest.fixture
def cpu(monkeypatch):
    """Make mlxspec do what it does where MLX computes on a CPU."""
    believe("cpu", monkeypatch.setattr)


@pytest.fixture
def gpu(monkeypatch):
    """Make mlxspec do what it does where MLX computes on a GPU; here a CPU may still compute."""
    believe("gpu", monkeypatch.setattr)


@pytest.fixture
def forwards():
    """Counts the forwards of each model in this test."""
    from tests.support.row_count import ForwardCount  # here, so that collecting needs no model

    with ForwardCount() as count:
        yield count


@pytest.fixture
def own_facts(request):
    """Skip where facts are put on: over weights that stay packed a CPU takes minutes for a word."""
    if request.config.getoption("--device-facts") != "own":
        pytest.skip("a CPU takes minutes over the packed weights that a GPU would have")
