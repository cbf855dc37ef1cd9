"""Two replies of `mlxspec serve` to one prompt, with drafts and plain, as recordings for a race.

Both are greedy. The one with drafts is written first, so that its drafter cannot have seen the
reply. Their speeds exclude the prefill.
"""

from collections.abc import Callable, Iterator

from mlxspec.errors import ServerError
from mlxspec.trace.events import Event, GenerationFailed, GenerationFinished, TurnStarted
from mlxspec_app.sessions.servers.address import ServerAddress
from mlxspec_app.sessions.servers.chat import StreamedReply
from mlxspec_app.sessions.servers.feed import ServerFeed
from mlxspec_app.sessions.servers.items import EventsLost, ReplyEvent, StreamBroken

_RUNS = {"with drafts": {}, "plain": {"num_draft_tokens": 0}}
_GREEDY = {"temperature": 0, "seed": 0}


def run_twice(
    server: ServerAddress, prompt: str, model: str = "", say: Callable[[str], object] = print
) -> list[list[Event]]:
    """Return the events of both replies, the plain one first, as `mlxspec race` shows them.

    `model` "" takes the server's own. `say` is called when a run starts.

    Raises:
        ServerError: No server answers, it is of another kind, it needs another key, it refuses the
            prompt, or events were lost.
    """
    runs: list[list[Event]] = []
    for number, (name, own) in enumerate(_RUNS.items(), 1):
        feed = ServerFeed(server)
        feed.open()  # before the prompt is sent, so that no event is missed
        say(f"run {number} of {len(_RUNS)}, {name}")
        reply = StreamedReply(server, prompt, model, **_GREEDY, **own)
        runs.append([TurnStarted("user", prompt), *_events(feed, reply)])
    return runs[::-1]


def _events(feed: ServerFeed, reply: StreamedReply) -> Iterator[Event]:
    first = next(reply.chunks, None) or {}
    name = f"{first.get('id', '')}".removeprefix("chatcmpl-") + "-0"
    reply.read_aside()
    for item in feed.items():
        match item:
            case ReplyEvent(reply=told, event=event) if told == name:
                yield event
                if isinstance(event, GenerationFailed):
                    raise ServerError(f"the reply failed: {event.message}")
                if isinstance(event, GenerationFinished):
                    return
            case EventsLost():
                raise ServerError("events of the reply were lost: race again")
            case StreamBroken(why):
                raise ServerError(f"{why}: race again")
