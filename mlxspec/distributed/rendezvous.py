"""How the ranks find each other: rank 0 listens, and shares its address by a collective.

It shares a secret word with the address, so that no other program on the network can connect.
"""

import json
import os
import secrets
import socket
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxspec.distributed.handshake import check_same, versions
from mlxspec.distributed.sharding import told_all
from mlxspec.distributed.wire import SILENCE_S, Wire, WireError
from mlxspec.errors import MlxspecError, RankLostError

JOIN_S = 20.0
"""Seconds that ranks which have started may take to join."""
_UPDATE = "install the same versions on all machines"


def not_all_within(seconds: float) -> str:
    """Return the message for a rank that does not join."""
    return (
        f"the ranks have started, and not all join within {seconds:.0f} s: look whether one "
        "stands still, and whether they reach each other's addresses"
    )


def initialised(name: str) -> mx.distributed.Group:
    """Return the group that MLX joins over a back end, as the environment defines it.

    MLX waits for the others, and holds the interpreter meanwhile.

    Raises:
        MlxspecError: MLX cannot join.
    """
    try:
        return mx.distributed.init(strict=True, backend=name.removesuffix("-ring"))
    except RuntimeError as error:
        raise MlxspecError(f"MLX cannot join the ranks over {name}: {error}") from error


def accept_ranks(group: mx.distributed.Group) -> list[Wire]:
    """Return the connections to ranks 1, 2, ..., on rank 0.

    Raises:
        RankLostError: A rank does not connect, or has other versions.
    """
    with socket.create_server((_own_address(), 0)) as server:
        server.settimeout(SILENCE_S)
        word = secrets.token_hex(16)
        told_all([*server.getsockname()[:2], word], group)
        found: dict[int, tuple[Wire, dict[str, Any]]] = {}
        while len(found) < group.size() - 1:
            wire, facts = _accepted(server)
            if secrets.compare_digest(str(facts.get("word")), word):
                found[facts["rank"]] = wire, facts
            else:
                wire.close()
    ordered = [found[rank] for rank in sorted(found)]
    try:
        check_same(versions(), [facts["versions"] for _, facts in ordered], _UPDATE)
    except RankLostError:
        for wire, _ in ordered:
            wire.close()
        raise
    return [wire for wire, _ in ordered]


def _accepted(server: socket.socket) -> tuple[Wire, dict[str, Any]]:
    try:
        wire = Wire(server.accept()[0])
        facts = wire.receive(SILENCE_S)
    except (OSError, WireError) as error:
        raise RankLostError(f"a rank did not connect to rank 0: {error}") from error
    return wire, facts if isinstance(facts, dict) else {}


def join_rank_0(group: mx.distributed.Group) -> Wire:
    """Return the connection to rank 0, on another rank."""
    host, port, word = told_all(None, group)
    wire = Wire(socket.create_connection((host, port), timeout=SILENCE_S))
    wire.send(word=word, rank=group.rank(), versions=versions())
    return wire


def _own_address() -> str:
    """Return the address at which the others reach rank 0, from the launcher's environment."""
    if coordinator := os.environ.get("MLX_JACCL_COORDINATOR"):
        return coordinator.rpartition(":")[0]
    if hostfile := os.environ.get("MLX_HOSTFILE"):
        addresses: list[list[str]] = json.loads(Path(hostfile).read_bytes())
        return addresses[0][0].rpartition(":")[0]
    return socket.gethostbyname(socket.gethostname())
