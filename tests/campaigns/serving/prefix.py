"""Prefix: a long prompt asked twice; the time to the first token, cold and warm."""

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from tests.campaigns.serving.asking import chat_body, told
from tests.campaigns.serving.figures import table
from tests.campaigns.serving.load import ask_all, both, numbered_prompts
from tests.campaigns.serving.process import Served

_REPLY = 8
_LINE = "Entry {number}: the {thing} of pier {pier} was looked at on day {number}, and is sound.\n"
_THINGS = ("lamp", "rope", "bell", "ladder", "crane", "fender", "winch")


def run(args: Namespace) -> dict[str, Any]:
    """Measure both servers with prompts that they have not seen, each asked twice."""
    rows: list[dict[str, Any]] = []
    with both(args) as servers:
        for server in servers:
            ask_all(server, [next(numbered_prompts())], 1, 4)  # loads and compiles
        count = _num_lines(servers[0], args.prompt_tokens)
        for repeat in range(args.repeats):
            order = servers if repeat % 2 == 0 else servers[::-1]
            rows += [_measured(server, _prompt(repeat, count)) for server in order]
    print(table(rows))
    return {"rows": rows, "is_good": all(row["same text"] for row in rows)}


def _measured(server: Served, prompt: str) -> dict[str, Any]:
    cold, warm = (told(server.url, chat_body(server.model, prompt, _REPLY)) for _ in range(2))
    details = warm.usage.get("prompt_tokens_details") or {}
    return {
        "server": server.name,
        "prompt tokens": cold.usage["prompt_tokens"],
        "cold, s": cold.first_s,
        "warm, s": warm.first_s,
        "cached tokens": details.get("cached_tokens", 0),
        "same text": cold.text == warm.text,
    }


def _num_lines(server: Served, tokens: int) -> int:
    """Return how many lines make a prompt of about that many tokens."""
    lengths = []
    for count in (20, 120):
        reply = told(server.url, chat_body(server.model, _prompt(-1, count), 1))
        lengths.append(reply.usage["prompt_tokens"])
    return 20 + round((tokens - lengths[0]) * 100 / (lengths[1] - lengths[0]))


def _prompt(repeat: int, num_lines: int) -> str:
    """Return a prompt whose first words are of this repetition alone."""
    lines: Sequence[str] = [
        _LINE.format(number=1000 + number, thing=_THINGS[number % 7], pier=number % 5)
        for number in range(num_lines)
    ]
    return f"Book {repeat + 2}.\n{''.join(lines)}How many piers are there?"
