"""The answers of a session without a model to the orders that need one."""

from mlxspec.trace.events import Event
from mlxspec_app.conversation.session import (
    AlternativesFound,
    ModelChoice,
    ProofFinished,
    RaceFinished,
    SessionEvent,
    SessionNotice,
)


class ReadOnly:
    """Answers the orders of `Session` that need a model; `drain` returns these answers, `news`."""

    def __init__(self, what: str) -> None:
        """Describe the session for every answer, such as "this is a recording"."""
        self.news: list[Event | SessionEvent] = []
        self._what = what

    def forget_oldest(self, allowed: bool) -> None:
        """Do nothing: no context fills here."""

    def load(self, choice: ModelChoice) -> None:
        self.notify(f"{self._what}: no other model can answer in it")

    def prove(self) -> None:
        self.news.append(ProofFinished(None, f"{self._what}: no model is here to verify it"))

    def find_alternatives(self, turn: int, position: int) -> None:
        why = f"{self._what}: no model is here to ask; it holds only what was drafted"
        self.news.append(AlternativesFound(turn, position, message=why))

    def branch(self, turn: int, position: int, token: int) -> None:
        why = f"{self._what}: no model is here to continue from there"
        self.news.append(AlternativesFound(turn, position, message=why))

    def race(self, text: str) -> None:
        self.news.append(RaceFinished(message=f"{self._what}: no model is here to race"))

    def adjust(self, name: str, value: str) -> None:
        raise ValueError(f"{name} cannot be set to {value}: {self._what}")

    def adjustable(self) -> dict[str, str]:
        return {}

    def origins(self) -> dict[str, str]:
        return {}

    def notify(self, message: str) -> None:
        self.news.append(SessionNotice(message))
