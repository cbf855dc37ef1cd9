"""`mlxspec watch`: show what a server writes while it is written; needs neither MLX nor a model.

With `--plain`, or without a terminal, each reply is printed when it is over.
"""

from argparse import Namespace
from collections.abc import Iterable, Iterator

from mlxspec.trace.events import text_of
from mlxspec_app.sessions.servers.address import ServerAddress
from mlxspec_app.sessions.servers.asked import ask
from mlxspec_app.sessions.servers.feed import ServerFeed
from mlxspec_app.sessions.servers.items import (
    EventsLost,
    FeedItem,
    FiguresTold,
    ReplyEvent,
    StreamBroken,
)
from mlxspec_app.sessions.watching import Watched
from mlxspec_cli.output import can_draw, for_output, say, summary_line


def run(args: Namespace) -> int:
    """Watch until the user quits.

    Raises:
        ValueError: The address or the key cannot be one, or the prompt is empty.
        ServerError: There is no server, it needs another key, it tells nothing of its replies, or
            it refuses the prompt.
    """
    server = ServerAddress(args.url, args.api_key)
    items = _items(server, args)  # a wrong address is an error before the screen opens
    if not args.plain and can_draw():
        from mlxspec_app.run import open_user_data, run_watch

        return run_watch(items, server.url, user_data=open_user_data())
    say(f"{server.url}: each reply is printed when it is over; Ctrl+C ends it")
    for line in plain_lines(items):
        print(for_output(line), flush=True)
    return 0


def _items(server: ServerAddress, args: Namespace) -> Iterator[FeedItem]:
    if args.ask is None:
        if args.model:
            raise ValueError("--model names the model that --ask wants: give --ask TEXT with it")
        feed = ServerFeed(server)
        feed.open()
        return feed.items()
    if not args.ask.strip():
        raise ValueError("--ask wants a prompt; got an empty text")
    return ask(server, args.ask, args.model)


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
            case FiguresTold(name) if name in running:
                running[name].tell(item)
            case ReplyEvent(model, name, event):
                reply = running.setdefault(name, Watched(name, model))
                reply.add(event)
                if reply.is_over:
                    yield from _lines_of(running.pop(name))


def _lines_of(reply: Watched) -> Iterator[str]:
    part = " (seen from its middle on)" if reply.is_part else ""
    yield f"{reply.name} · {reply.model}{part}"
    yield "".join(map(text_of, reply.events))
    yield f"[{_figures_of(reply)}]"
    if reply.is_failed:
        yield f"[failed: {getattr(reply.events[-1], 'message', '')}]"
    yield ""


def _figures_of(reply: Watched) -> str:
    stats = reply.stats
    if not reply.told:
        return summary_line(stats.as_dict(), drafter=reply.drafter or "unknown drafter")
    speed = f"{stats.generated_tokens} tokens · {stats.generation_tps:.1f} tokens/s"
    return f"{speed} · first token after {stats.ttft_s:.2f} s · the server tells {reply.told}"
