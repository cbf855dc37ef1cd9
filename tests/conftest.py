"""Run before any test is imported: mlxspec must come before mlx.core to choose the BLAS."""

import pytest
from hypothesis import settings

import mlxspec  # noqa: F401

from app_pictures import FOLDER, Pictures  # isort: skip - after mlxspec, see above

# The same examples in every run: a suite that passed stays passed until the code changes.
settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.load_profile("repeatable")


def pytest_addoption(parser):
    parser.addoption(
        "--update-snapshots",
        action="store_true",
        help="write the pictures of tests/test_app_snapshots.py anew instead of comparing them",
    )


def pytest_collection_modifyitems(items):
    """Run the slow tests first, so that no worker waits for the last of them."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture
def pictures(request, tmp_path):
    """Compares screens with their pictures, or writes these anew."""
    return Pictures(FOLDER, tmp_path, renews=request.config.getoption("--update-snapshots"))
