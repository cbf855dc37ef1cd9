"""`mlxspec watch`: show what a server writes while it is written; needs neither MLX nor a model.

With `--plain`, or without a terminal, each reply is printed when it is over.
"""

from argparse import Namespace
from collections.abc import Iterable, Iterator

from mlxspec.trace.events import text_of
from mlxspec_app.sessions.server_feed import (
    EventsLost,
    FeedItem,
    ReplyEvent,
    ServerFeed,
    StreamBroken,
)
from mlxspec_app.sessions.watching import Watched
from mlxspec_cli.output import can_draw, for_output, say, summary_line


def run(args: Namespace) -> int:
    """Watch until the user quits.

    Raises:
        ValueError: The address or the key cannot be one.
        ServerError: There is no server, it is another one, or it needs another key.
    """
    feed = ServerFeed(args.url, args.api_key)
    feed.check()  # a wrong address is an error before the screen opens
    if not args.plain and can_draw():
        from mlxspec_app.run import open_user_data, run_watch

        return run_watch(feed, user_data=open_user_data())
    say(f"{feed.url}: each reply is printed when it is over; Ctrl+C ends it")
    for line in plain_lines(feed.items()):
        print(for_output(line), flush=True)
    return 0


def plain_lines(items: Iterable[FeedItem]) -> Iterator[str]:
    """Yield each reply when it is over, its figures, and an empty line; trouble is said aside."""
    running: dict[str, Watched] = {}
    for item in items:
        match item:
            case StreamBroken(why):
                say(f"{why}; trying again")
                running.clear()
            case EventsLost(count):
                say(f"{count} events were lost: the replies that run have gaps")
            case ReplyEvent(model, name, event):
                reply = running.setdefault(name, Watched(name, model))
                reply.add(event)
                if reply.is_over:
                    yield from _lines_of(running.pop(name))


def _lines_of(reply: Watched) -> Iterator[str]:
    part = " (seen from its middle on)" if reply.is_part else ""
    yield f"{reply.name} · {reply.model}{part}"
    yield "".join(map(text_of, reply.events))
    figures = summary_line(reply.stats.as_dict(), drafter=reply.drafter or "unknown drafter")
    yield f"[{figures}]"
    if reply.is_failed:
        yield f"[failed: {getattr(reply.events[-1], 'message', '')}]"
    yield ""
