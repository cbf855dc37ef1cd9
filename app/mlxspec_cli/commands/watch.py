"""`mlxspec watch`: show what a server writes, live; needs neither MLX nor a model."""

import time
from argparse import Namespace
from collections.abc import Iterable, Iterator

from mlxspec.trace.events import text_of
from mlxspec_app.playback.race import Race, Track
from mlxspec_app.sessions import servers
from mlxspec_app.sessions.watching import Watched
from mlxspec_cli.commands.race import show_race
from mlxspec_cli.output import can_draw, for_output, say, summary_line


def run(args: Namespace) -> int:
    """Watch until the user quits."""
    server = servers.ServerAddress(args.url, args.api_key)
    _check(args)
    if args.race is not None:
        plain, drafted = servers.run_twice(server, args.race, args.model, say)
        race = Race([Track("A", plain), Track("B", drafted)], time.monotonic)
        return show_race(race, is_plain=args.plain)
    feed = servers.ServerFeed(server)
    feed.open()  # a wrong address is an error before the screen opens
    if args.ask is not None:  # after the feed is open, so that no event is missed
        servers.read_aside(servers.ask_chat(server, args.ask, args.model))
    items = feed.items()
    if not args.plain and can_draw():
        from mlxspec_app.run import run_watch
        from mlxspec_app.user_data import find_user_data

        return run_watch(items, server.url, user_data=find_user_data())
    say(f"{server.url}: each reply is printed when it is over; Ctrl+C ends it")
    for line in plain_lines(items):
        print(for_output(line), flush=True)
    return 0


def _check(args: Namespace) -> None:
    prompts = {"--ask": args.ask, "--race": args.race}
    given = [name for name, text in prompts.items() if text is not None]
    if args.model and not given:
        raise ValueError("--model names the model for a prompt: give --ask TEXT or --race TEXT")
    if len(given) > 1:
        raise ValueError("--ask shows one reply and --race two: give one of them")
    for name in given:
        if not prompts[name].strip():
            raise ValueError(f"{name} wants a prompt; got an empty text")


def plain_lines(items: Iterable[servers.FeedItem]) -> Iterator[str]:
    """Yield each finished reply, its figures, and an empty line; errors go to standard error."""
    running: dict[str, Watched] = {}
    for item in items:
        match item:
            case servers.StreamBroken(why):
                say(f"{why}; trying again")
                running.clear()
            case servers.EventsLost(count):
                say(f"{count} events were lost: the replies that run have gaps")
            case servers.ReplyEvent(model, name, event):
                reply = running.setdefault(name, Watched(name, model))
                reply.add(event)
                if reply.is_over:
                    yield from _lines_of(running.pop(name))


def _lines_of(reply: Watched) -> Iterator[str]:
    part = " (seen from its middle on)" if reply.is_part else ""
    yield f"{reply.name} · {reply.model}{part}"
    yield "".join(map(text_of, reply.events))
    yield f"[{summary_line(reply.stats.as_dict(), drafter=reply.drafter or 'unknown drafter')}]"
    if reply.is_failed:
        yield f"[failed: {getattr(reply.events[-1], 'message', '')}]"
    yield ""
