"""`mlxspec replay`: show a recorded trace in the app; needs neither MLX nor a model."""

from argparse import Namespace

from mlxspec.trace.file import read_trace


def run(args: Namespace) -> int:
    """Open the app on a trace."""
    for _ in read_trace(args.file):  # a broken file is an error before the screen opens
        pass
    from mlxspec_app.run import run_replay
    from mlxspec_app.user_data import find_user_data

    return run_replay(args.file, speed=args.speed, user_data=find_user_data())
