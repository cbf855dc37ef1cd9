"""Ends the wait for a missing rank: `python -I doorbell.py SECONDS HERE THERE PIPE ...`.

While MLX joins the ranks, it waits for connections forever and holds the interpreter: no thread
could notice that a rank has ended, and Ctrl+C does nothing. So a second process watches the other
ranks and connects in place of a rank that is gone. MLX then continues, and the caller checks the
ranks.

It imports only the standard library, so it starts at once. Its standard input ends when the ranks
have joined or rank 0 is gone; then it ends too.
"""

import os
import select
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress

_INPUT = 0
_LOOK_S = 0.1


def main(seconds: float, here: str, there: str, pipes: Sequence[int]) -> bool:
    """Wait until the ranks have joined; ring if one ends first, or if that takes too long.

    MLX waits for the last rank in the ring at `here`, and looks for the next rank at `there`; both
    are "host:port". The other ranks read from `pipes`: a rank that ends closes its pipe. Joining
    may take `seconds`. Returns whether it rang.
    """
    ranks = select.poll()
    ranks.register(_INPUT, select.POLLIN)
    for pipe in pipes:
        ranks.register(pipe, 0)  # only its end
    if any(number == _INPUT for number, _ in ranks.poll(1e3 * seconds)):
        return False
    with ExitStack() as held:
        with suppress(OSError):  # an address of another machine, or the rank is there
            held.enter_context(socket.create_server(_parts(there)))
        while not _has_ended(held, here):
            time.sleep(_LOOK_S)
        while os.read(_INPUT, 1):
            pass
    return True


def _has_ended(held: ExitStack, here: str) -> bool:
    """Try to connect; return whether that worked or is no longer needed."""
    if select.select([_INPUT], [], [], 0)[0]:
        return True
    try:
        held.enter_context(socket.create_connection(_parts(here)))
    except OSError:  # MLX does not listen yet
        return False
    return True


def _parts(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[4:]]
    sys.exit(main(float(sys.argv[1]), sys.argv[2], sys.argv[3], numbers))
