"""`python -m mlxspec` runs `mlxspec`: the command line, which stands above the library."""

from runpy import run_module

run_module("mlxspec_cli", run_name="__main__", alter_sys=True)
