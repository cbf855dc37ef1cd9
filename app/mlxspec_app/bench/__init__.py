"""Measures what the app costs while a reply streams in: `python -m mlxspec_app.bench`."""
