"""`python -m mlxspec.distributed BACKEND`: a rank that another mlxspec process has started."""

import os
import sys
import threading


def _end_with_the_input() -> None:
    """End this process when its standard input ends, so with the process that started it."""
    while os.read(0, 1 << 10):
        pass
    os._exit(0)


def main() -> None:
    """Compute what rank 0 orders."""
    # Before MLX, because joining may wait forever for a rank that is gone.
    threading.Thread(target=_end_with_the_input, daemon=True).start()
    from mlxspec.device import backend

    backend.check()
    from mlxspec.distributed.following import run_rank
    from mlxspec.distributed.processes import READY

    print(READY, flush=True)
    run_rank(sys.argv[1])


if __name__ == "__main__":
    main()
