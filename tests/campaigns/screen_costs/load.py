"""A synthetic conversation of any length, and a session that returns it round by round."""

from collections.abc import Iterator
from itertools import chain, count, cycle, islice

from mlxspec.trace import events
from mlxspec.trace.events import Event
from mlxspec_app.conversation.events import AnyEvent, SessionReady
from mlxspec_app.conversation.orders import ReadOnly
from mlxspec_app.conversation.state import ChatState

TOKENS_PER_ROUND = 4
_PARAGRAPH = (
    "the draft model writes a few words ahead and **the target** reads them all at once so that "
    "`accepted` tokens cost less than their share of a pass while the text stays what it was.\n\n"
)
_CODE = (
    "def merge(left, right):\n    merged = []\n    while left and right:\n        "
    "smaller = left if left[0] <= right[0] else right\n        merged.append(smaller.pop(0))\n    "
    "return merged + left + right\n\n"
)
_ROUNDS_ABOVE = 30


def rounds_of(kind: str) -> Iterator[list[Event]]:
    """Yield the events of one endless reply, round by round.

    Its text is "prose" in paragraphs, or a "fence": one block of code that is never closed. Every
    round drafts five tokens, accepts three and adds one.
    """
    words = [f" {word}" for word in _PARAGRAPH.split(" ")]
    code = [_CODE[start : start + 4] for start in range(0, len(_CODE), 4)]
    tokens = cycle(words) if kind == "prose" else chain(["```python\n"], cycle(code))
    for r in count(1):
        texts = list(islice(tokens, TOKENS_PER_ROUND))
        drafted = enumerate([*texts[:-1], " or", " else"])
        nodes = tuple(events.DraftNode(n + 1, n, n, text, 0.8, "suffix") for n, text in drafted)
        emit = [events.EmittedToken(n, text, "accepted", 0.9, 0.8) for n, text in enumerate(texts)]
        emit[-1] = events.EmittedToken(len(texts) - 1, texts[-1], "corrected", 0.7)
        path = tuple(range(1, len(texts)))
        yield [
            events.DraftProposed(r, 0.02 * r, 0, nodes, 2.0),
            events.DraftVerified(r, 0.02 * r + 0.02, path, tuple(emit), 18.0, 2, 4 * r),
        ]


def conversation(num_messages: int) -> list[Event]:
    """Return the events of a finished conversation: questions and replies in turn."""
    told: list[Event] = []
    for number in range(num_messages // 2):
        told.append(events.TurnStarted("user", f"Question {number}: how does it work?"))
        told.append(events.GenerationStarted("target", "drafter", context_length=1 << 17))
        told += chain.from_iterable(islice(rounds_of("prose"), _ROUNDS_ABOVE))
        told.append(events.GenerationFinished(1.0, "stop"))
    return told


class FedSession(ReadOnly):
    """A session that returns the events passed to `feed`."""

    def __init__(self) -> None:
        super().__init__("this is a measurement")
        self.news = [SessionReady()]

    @property
    def busy(self) -> bool:
        return True

    def start(self) -> None: ...

    def close(self) -> None: ...

    def feed(self, events: list[Event]) -> None:
        self.news += events

    def drain(self) -> list[AnyEvent | ChatState]:
        news, self.news = self.news, []
        return news
