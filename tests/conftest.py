"""Run before any test is imported: mlxspec must come before mlx.core to choose the BLAS."""

from hypothesis import settings

import mlxspec  # noqa: F401

# The same examples in every run: a suite that passed stays passed until the code changes.
settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.load_profile("repeatable")
