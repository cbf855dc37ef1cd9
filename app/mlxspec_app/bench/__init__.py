"""Measures the cost of the app while a reply streams in: `python -m mlxspec_app.bench`."""
