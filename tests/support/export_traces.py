"""Small made-up recordings for the tests of the exports, some of them hostile."""

from collections.abc import Sequence

from mlxspec.trace.events import (
    DraftNode,
    DraftProposed,
    DraftVerified,
    EmittedToken,
    Event,
    GenerationFinished,
    GenerationStarted,
    TurnStarted,
)
from mlxspec_app.export.recording import Recording
from tests.traces import make_fake

HOSTILE = (
    "</script><script>document.title='broken'</script>",
    "<!-- <img src=x onerror=alert(1)> ]]> &amp; \"quoted\" 'single' $title ${style}",
    "\x1b[31mred\x1b]0;title\x07\x00\x9b2J\x7f",
    "\u202eright to left\u2066 \u200f\ufeff",
    "\u2028line\u2029 \ud800 surrogate \ufffe\uffff",
    "tab\there\r\nand\rthere",
)


def chat() -> Recording:
    return Recording.of("chat", make_fake.chat())


def saying(*texts: str, asked: str = "a question") -> Recording:
    """A recording of one reply with these token texts: each accepted, with a rejected sibling."""
    return Recording.of("made up", list(events_saying(texts, asked)))


def events_saying(texts: Sequence[str], asked: str) -> list[Event]:
    events: list[Event] = [TurnStarted("user", asked), GenerationStarted("target", "drafter")]
    for r, text in enumerate(texts, 1):
        nodes = (DraftNode(1, 0, 5, text, 0.6, "suffix"), DraftNode(2, 0, 6, text, 0.3, "table"))
        emit = (EmittedToken(5, text, "accepted", 0.5, 0.6), EmittedToken(7, "!", "bonus", 0.9))
        events.append(DraftProposed(r, float(r), 1, nodes, 1.0))
        events.append(DraftVerified(r, r + 0.5, (1,), emit, 40.0, 1, 10 + 2 * r))
    events.append(GenerationFinished(len(texts) + 1.0, "stop"))
    return events
