"""Load: many clients at once, the same requests to `mlxspec serve` and to mlx-lm's server.

Both servers run, over the same weights with the same BLAS, and are asked in turn: one is idle while
the other works. Every request is a new text, so that none is known from an earlier turn.
"""

import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from mlxspec.bench.prompts import read_questions
from tests.campaigns.serving.asking import Told, chat_body, told
from tests.campaigns.serving.figures import percentile, table
from tests.campaigns.serving.model import dtype_of, model_folder
from tests.campaigns.serving.parting import Parting, parting
from tests.campaigns.serving.process import OURS, THEIRS, Served, served


@dataclass(frozen=True)
class Turn:
    """What one server did with the requests of some clients.

    Attributes:
        server: Whose server.
        clients: Number of clients.
        seconds: From the first request to the end of the last reply.
        replies: The replies, in the order of the requests.
    """

    server: str
    clients: int
    seconds: float
    replies: list[Told]


def run(args: Namespace) -> dict[str, Any]:
    """Measure both servers; return the table, and where texts part."""
    prompts = numbered_prompts()
    turns: list[Turn] = []
    partings: list[Parting] = []
    with both(args) as servers:
        for server in servers:
            ask_all(server, [next(prompts)], 1, 4)  # loads and compiles
        for repeat in range(args.repeats):
            for clients in args.clients:
                texts = [next(prompts) for _ in range(clients * args.requests)]
                order = servers if repeat % 2 == 0 else servers[::-1]
                found = {one.name: ask_all(one, texts, clients, args.tokens) for one in order}
                turns += found.values()
                pair = found[OURS].replies, found[THEIRS].replies
                partings += _partings(servers[0], texts, *pair, args.tokens)
    rows = [_row(turns, clients, name) for clients in args.clients for name in (OURS, THEIRS)]
    print(table(rows))
    asked = sum(len(turn.replies) for turn in turns) // 2
    print(f"\n{asked - len(partings)} of {asked} replies have the same text from both servers")
    for one in partings:
        print(f"  one parts after {one.num_same} characters: {one.words}")
    is_good = all(one.is_near_tie for one in partings)
    return {"rows": rows, "partings": [vars(one) for one in partings], "is_good": is_good}


def numbered_prompts() -> Iterator[str]:
    """Yield the questions of the bench again and again, each time as a new text."""
    texts = [question.turns[0] for question in read_questions()]
    for number in count():
        yield f"Question {number + 1}. {texts[number % len(texts)]}"


@contextmanager
def both(args: Namespace) -> Iterator[tuple[Served, Served]]:
    """Run both servers over the same weights; ours comes first."""
    with (
        model_folder(args.model) as folder,
        served(our_flags(folder, args)) as ours,
        served(["--model", str(folder)], THEIRS) as theirs,
    ):
        yield ours, theirs


def our_flags(folder: Path, args: Namespace) -> list[str]:
    """Return the flags of our server: the dtype is that in which mlx-lm computes."""
    return [str(folder), "--dtype", dtype_of(folder), "--drafter", args.drafter]


def ask_all(server: Served, texts: Sequence[str], clients: int, tokens: int) -> Turn:
    """Let some clients ask for a reply to each text; each asks again when it is answered."""
    bodies = [chat_body(server.model, text, tokens) for text in texts]
    begin = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        replies = list(pool.map(lambda body: told(server.url, body), bodies))
    return Turn(server.name, clients, time.perf_counter() - begin, replies)


def _partings(
    ours: Served, texts: Sequence[str], first: Sequence[Told], second: Sequence[Told], tokens: int
) -> list[Parting]:
    return [
        parting(ours, text, (one.text, other.text), tokens)
        for text, one, other in zip(texts, first, second, strict=True)
        if one.text != other.text
    ]


def _row(turns: Sequence[Turn], clients: int, server: str) -> dict[str, Any]:
    mine = [turn for turn in turns if (turn.clients, turn.server) == (clients, server)]
    firsts = [reply.first_s for turn in mine for reply in turn.replies]
    tokens = sum(reply.tokens for turn in mine for reply in turn.replies)
    return {
        "clients": clients,
        "server": server,
        "replies": len(firsts),
        "tokens/s": tokens / sum(turn.seconds for turn in mine),
        "first token p50, s": percentile(firsts, 50),
        "first token p95, s": percentile(firsts, 95),
    }
