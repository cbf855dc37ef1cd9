"""`mlxspec doctor`: the facts of this machine, and what to do about them."""

from argparse import Namespace

from mlxspec import doctor


def run(args: Namespace) -> int:
    """Print the report; 1 when something is not as it should be."""
    return doctor.run()
