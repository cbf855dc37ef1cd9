"""Load: many clients at once, the same requests to `mlxspec serve` and to mlx-lm's server.

Both servers run, over the same weights with the same BLAS, and are asked in turn: one is idle while
the other works. Every request is a new text, so that none is known from an earlier turn.
"""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from mlxspec.bench.prompts import read_questions
from mlxspec.trace.difference import common_length
from tests.campaigns.serving.asking import Told, asked, chat_body, told
from tests.campaigns.serving.servers import OURS, THEIRS, model_folder, our_flags, served

NEAR = 0.01  # in nats; products of another shape round otherwise


@dataclass(frozen=True)
class Turn:
    """What one server did with the requests of some clients, from the first to the last reply."""

    server: str
    clients: int
    seconds: float
    replies: list[Told]


def run(args):
    """Measure both servers; return the table, and where texts part."""
    prompts, turns, partings = numbered_prompts(), [], []
    with both(args) as servers:
        for repeat in range(args.repeats):
            for clients in args.clients:
                texts = [next(prompts) for _ in range(clients * args.requests)]
                order = servers if repeat % 2 == 0 else servers[::-1]
                found = {one.name: ask_all(one, texts, clients, args.tokens) for one in order}
                turns += found.values()
                pairs = zip(texts, found[OURS].replies, found[THEIRS].replies, strict=True)
                for prompt, *pair in pairs:
                    said = [one.text for one in pair]
                    if said[0] != said[1]:
                        partings.append(parting(servers[0], prompt, said, args.tokens))
    rows = [_row(turns, clients, name) for clients in args.clients for name in (OURS, THEIRS)]
    print(table(rows))
    num_asked = sum(len(turn.replies) for turn in turns) // 2
    print(f"\n{num_asked - len(partings)} of {num_asked} replies have the same text from both")
    for one in partings:
        print(f"  one parts after {one.num_same} characters: {one.words}")
    is_good = all(one.is_near_tie for one in partings)
    return {"rows": rows, "partings": [vars(one) for one in partings], "is_good": is_good}


def numbered_prompts():
    """Yield the questions of the bench again and again, each time as a new text."""
    texts = [question.turns[0] for question in read_questions()]
    for number in count():
        yield f"Question {number + 1}. {texts[number % len(texts)]}"


@contextmanager
def both(args):
    """Run both servers over the same weights, each loaded and compiled; ours comes first."""
    with (
        model_folder(args.model) as folder,
        served(our_flags(folder, args)) as ours,
        served(["--model", str(folder)], THEIRS) as theirs,
    ):
        for server in (ours, theirs):
            ask_all(server, ["One word to begin with."], 1, 4)
        yield ours, theirs


def ask_all(server, texts, clients, tokens):
    """Let some clients ask for a reply to each text; each asks again when it is answered."""
    bodies = [chat_body(server.model, text, tokens) for text in texts]
    begin = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        replies = list(pool.map(lambda body: told(server.url, body), bodies))
    return Turn(server.name, clients, time.perf_counter() - begin, replies)


def _row(turns, clients, server):
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


def percentile(values, percent):
    """Return a percentile, on the line between the two values beside it."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def table(rows):
    """Return rows as a Markdown table, its columns those of the first row."""
    names = list(rows[0])
    cells = [
        [f"{row[name]:.2f}" if isinstance(row[name], float) else str(row[name]) for name in names]
        for row in rows
    ]
    lines = [names, ["---"] * len(names), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# ---- where two greedy texts part, and whether rounding can have decided there --------------------


@dataclass(frozen=True)
class Parting:
    """Where two replies to the same request part, and how far the two likeliest tokens are apart.

    Attributes:
        num_same: Characters that both begin with.
        gap: In nats.
        texts: Both from there on, shortened.
    """

    num_same: int
    gap: float
    texts: list[str]

    @property
    def is_near_tie(self):
        return self.gap < NEAR

    @property
    def words(self):
        kind = "a near tie" if self.is_near_tie else "NOT a near tie"
        return f"{kind}, {self.gap:.4f} nats apart: {' | '.join(map(repr, self.texts))}"


def parting(server, prompt, texts, max_tokens):
    """Return where two texts part; a server of ours tells the logprobs of the first one there."""
    num_same = common_length(*texts)
    fields = {"stream": False, "stream_options": None, "logprobs": True, "top_logprobs": 2}
    body = chat_body(server.model, prompt, max_tokens, **fields)
    with asked(server.url, "/v1/chat/completions", body) as response:
        rows = json.load(response)["choices"][0]["logprobs"]["content"]
    gap = gap_at(rows, texts[0][:num_same])
    return Parting(num_same, gap, [text[num_same:][:30] for text in texts])


def gap_at(rows, before):
    """Return the distance of the two likeliest tokens after the beginning of a text, in nats.

    A token may be a part of a character.
    """
    length, same = 0, len(before.encode())
    for row in rows:
        length += len(row["bytes"])
        if length > same:
            break
    first, second = (top["logprob"] for top in row["top_logprobs"])
    return first - second


# ---- prefix: a long prompt asked twice -----------------------------------------------------------

_LINE = "Entry {number}: the {thing} of pier {pier} was looked at on day {number}, and is sound.\n"
_THINGS = ("lamp", "rope", "bell", "ladder", "crane", "fender", "winch")


def run_prefix(args):
    """Measure the time to the first token, cold and warm, with prompts that are new."""
    rows = []
    with both(args) as servers:
        lengths = [_twice(servers[0], _prompt(-1, lines))["prompt tokens"] for lines in (20, 120)]
        num_lines = 20 + round((args.prompt_tokens - lengths[0]) * 100 / (lengths[1] - lengths[0]))
        for repeat in range(args.repeats):
            order = servers if repeat % 2 == 0 else servers[::-1]
            rows += [_twice(server, _prompt(repeat, num_lines)) for server in order]
    print(table(rows))
    return {"rows": rows, "is_good": all(row["same text"] for row in rows)}


def _twice(server, prompt):
    cold, warm = (told(server.url, chat_body(server.model, prompt, 8)) for _ in range(2))
    details = warm.usage.get("prompt_tokens_details") or {}
    return {
        "server": server.name,
        "prompt tokens": cold.usage["prompt_tokens"],
        "cold, s": cold.first_s,
        "warm, s": warm.first_s,
        "cached tokens": details.get("cached_tokens", 0),
        "same text": cold.text == warm.text,
    }


def _prompt(repeat, num_lines):
    """Return a prompt whose first words are of this repetition alone."""
    lines = [
        _LINE.format(number=1000 + number, thing=_THINGS[number % 7], pier=number % 5)
        for number in range(num_lines)
    ]
    return f"Book {repeat + 2}.\n{''.join(lines)}How many piers are there?"
