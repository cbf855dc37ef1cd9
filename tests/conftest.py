"""Run before any test is imported: mlxspec must come before mlx.core to choose the BLAS."""

import mlxspec  # noqa: F401
