"""The text of a reply in its channels: the answer, and the reasoning before it."""

from collections.abc import Iterable

from mlxspec.trace.events import Channel, Event, GenerationFinished


class ReplyText:
    """The text of one reply, collected from its events.

    `pieces` has text with its channel, in order; one piece for each emitted token.
    """

    def __init__(self, pieces: Iterable[tuple[Channel, str]] = ()) -> None:
        self.pieces: list[tuple[Channel, str]] = list(pieces)

    def add(self, event: Event) -> None:
        self.pieces += [(token.channel, token.text) for token in getattr(event, "emit", ())]
        if isinstance(event, GenerationFinished):
            self.pieces.append((self.pieces[-1][0] if self.pieces else "answer", event.text))

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.pieces)

    @property
    def reasoning(self) -> str:
        return self._of("reasoning")

    @property
    def answer(self) -> str:
        return self._of("answer")

    @property
    def is_split(self) -> bool:
        """Whether it has a channel other than the answer."""
        return any(channel != "answer" for channel, _ in self.pieces)

    def _of(self, wanted: Channel) -> str:
        return "".join(text for channel, text in self.pieces if channel == wanted)
