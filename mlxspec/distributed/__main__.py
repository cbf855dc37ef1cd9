"""`python -m mlxspec.distributed BACKEND`: a rank that another mlxspec process has started.

Rank 0 writes a byte to the standard input of this process before each message, and the input ends
with rank 0.
"""

import os
import sys
import threading


def main() -> None:
    """Compute what rank 0 orders."""
    announced = threading.Semaphore(0)

    def listen() -> None:
        while os.read(0, 1):
            announced.release()
        os._exit(0)  # the main thread may wait for a sum that will never come

    threading.Thread(target=listen, daemon=True).start()
    from mlxspec.device import backend

    backend.check()
    from mlxspec.distributed.follower import follow
    from mlxspec.distributed.processes import READY, joined_group

    print(READY, flush=True)
    os.dup2(2, 1)  # rank 0 reads no more lines
    follow(joined_group(sys.argv[1]), wait=announced.acquire)


if __name__ == "__main__":
    main()
