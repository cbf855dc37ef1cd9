"""A session that watches the replies of a server: it lists all of them and shows one."""

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from mlxspec.trace.events import Event, GenerationFailed, GenerationFinished, GenerationStarted
from mlxspec.trace.stats import GenerationStats
from mlxspec_app.conversation.events import AnyEvent, SessionOpening, SessionReady
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.orders import ReadOnly
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.sessions import servers
from mlxspec_app.sessions.servers import FeedItem, ReplyEvent

_MOST_REPLIES = 50
_MOST_WAITING = 20_000  # items that no frame has taken yet
_BROKEN = "the stream of the server was cut off"


@dataclass(eq=False)
class Watched:
    """The part of a server's reply that was received so far."""

    name: str
    model: str
    drafter: str = ""  # "" if unknown
    events: list[Event] = field(default_factory=list)
    stats: GenerationStats = field(default_factory=GenerationStats)
    is_over: bool = False  # whether it ended, or the connection was lost
    is_failed: bool = False
    is_part: bool = False  # whether its start was missed

    def add(self, event: Event) -> None:
        if isinstance(event, GenerationStarted):
            self.drafter = event.drafter
        is_first = not any(hasattr(one, "r") for one in self.events)
        self.is_part |= is_first and getattr(event, "r", 0) > 1
        self.is_failed = isinstance(event, GenerationFailed)
        self.is_over |= isinstance(event, GenerationFinished | GenerationFailed)
        self.events.append(event)
        self.stats.add(event)

    def state(self) -> ChatState:
        return fold(
            [SessionOpening(self.model, self.drafter), SessionReady(), *self.events],
            ChatState(has_own_forwards=False),
        )


class WatchSession(ReadOnly):
    """A session over the feed of a server; `sessions.session.Session` documents its methods."""

    busy = True  # a server may write at any time

    def __init__(self, items: Iterable[FeedItem]) -> None:
        """`items` block; a thread of their own reads them from `start` on."""
        super().__init__("these replies are written elsewhere")
        self.replies: dict[str, Watched] = {}  # seen so far, the newest last
        self.shown: Watched | None = None  # on the screen
        self.trouble = ""  # why no events come now
        self.num_lost = 0
        self._items = items
        self._waiting: deque[FeedItem] = deque()
        self._is_closed = False

    def start(self) -> None:
        self.news.append(SessionReady())
        threading.Thread(target=self._read, name="feed", daemon=True).start()

    def _read(self) -> None:
        for item in self._items:
            if self._is_closed:
                return
            if len(self._waiting) < _MOST_WAITING:
                self._waiting.append(item)
            else:
                self.num_lost += 1

    def close(self) -> None:
        self._is_closed = True

    def drain(self) -> list[AnyEvent | ChatState]:
        for _ in range(len(self._waiting)):
            self._take(self._waiting.popleft())
        news, self.news = self.news, []
        return news

    def move(self, direction: Literal[1, -1]) -> None:
        replies = list(self.replies.values())
        at = replies.index(self.shown) + direction if self.shown else -1
        if 0 <= at < len(replies):
            self._show(replies[at])

    @property
    def running(self) -> list[Watched]:
        return [reply for reply in self.replies.values() if not reply.is_over]

    def _take(self, item: FeedItem) -> None:
        match item:
            case ReplyEvent():
                self._add(item)
            case servers.EventsLost(count):
                self.num_lost += count
            case servers.StreamBegun():
                self.trouble = ""
            case servers.StreamBroken(why):
                self.trouble = why
                for reply in self.running:
                    failed = GenerationFailed(reply.stats.total_s, _BROKEN)
                    self._add(ReplyEvent(reply.model, reply.name, failed))

    def _add(self, item: ReplyEvent) -> None:
        reply = self.replies.get(item.reply)
        is_seen_again = isinstance(item.event, GenerationStarted)  # after a lost connection
        if reply is None or (reply.is_over and is_seen_again):
            reply = self.replies[item.reply] = Watched(item.reply, item.model)
            self._forget()
            if self.shown is None or self.shown.is_over:
                self._show(reply)
        reply.add(item.event)
        if reply is self.shown:
            self.news.append(item.event)

    def _show(self, reply: Watched) -> None:
        if reply is not self.shown:
            self.shown, self.news = reply, [reply.state()]

    def _forget(self) -> None:
        over = [reply for reply in self.replies.values() if reply.is_over]
        for reply in over[: max(0, len(self.replies) - _MOST_REPLIES)]:
            if reply is not self.shown:
                del self.replies[reply.name]
