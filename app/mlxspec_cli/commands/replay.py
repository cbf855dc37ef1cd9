"""`mlxspec replay`: show a recorded trace in the app; needs neither MLX nor a model."""

from argparse import Namespace


def run(args: Namespace) -> int:
    """Open the app on a trace."""
    from mlxspec_app.run import run_replay
    from mlxspec_app.user_data import find_user_data

    return run_replay(args.file, speed=args.speed, user_data=find_user_data())
