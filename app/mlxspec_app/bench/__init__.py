"""Measures the time to the first frame: `python -m mlxspec_app.bench.startup`."""
