"""Asks a server for a reply, and tells of it what the server tells: every server can be watched so.

`mlxspec serve` tells every event of it in its live feed. Other servers tell of a reply only whoever
asked for it, each as much as it does; see `told_reply`.
"""

import time
from collections.abc import Callable, Iterator

from mlxspec.trace.events import Event
from mlxspec_app.sessions.servers.address import ServerAddress
from mlxspec_app.sessions.servers.chat import StreamedReply
from mlxspec_app.sessions.servers.feed import ServerFeed
from mlxspec_app.sessions.servers.items import EventsLost, FeedItem, ReplyEvent, StreamBegun
from mlxspec_app.sessions.servers.told_reply import ToldReply


def ask(
    server: ServerAddress,
    prompt: str,
    model: str = "",
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[FeedItem]:
    """Send a prompt, and return what is told of the reply; `mlxspec serve` goes on with all others.

    Args:
        server: The server.
        prompt: The message of the user.
        model: Name of one of its models; "" takes the one that it takes.
        clock: Tells the time, in seconds.

    Raises:
        ServerError: There is no server, it needs another key, or it refuses the prompt.
    """
    feed = ServerFeed(server)
    if feed.try_open():  # before the prompt is sent, so that no event is missed
        StreamedReply(server, prompt, model).read_aside()
        return feed.items()
    began = clock()
    return _told(StreamedReply(server, prompt, model), lambda: clock() - began)


def _told(streamed: StreamedReply, seconds: Callable[[], float]) -> Iterator[FeedItem]:
    reply = ToldReply()

    def item(event: Event) -> ReplyEvent:
        return ReplyEvent(reply.model, reply.name, event)

    yield StreamBegun()
    for chunk in streamed.chunks:
        if chunk is None:
            yield EventsLost(1)
        else:
            yield from map(item, reply.add(chunk, seconds()))
    if reply.whole:
        yield reply.whole
    yield from map(item, reply.end(seconds()))
