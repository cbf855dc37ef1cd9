"""A session without a model: what it answers to the orders that need one."""

from mlxspec_app.conversation.events import (
    AlternativesFound,
    AnyEvent,
    ProofFinished,
    RaceFinished,
    SessionNotice,
)
from mlxspec_app.conversation.orders import (
    Branch,
    FindAlternatives,
    ForgetOldest,
    Load,
    Order,
    Prove,
    Race,
)
from mlxspec_app.conversation.state import ChatState


class ReadOnly:
    """Answers every order with the reason why it is impossible; `drain` returns `news`."""

    settings = None

    def __init__(self, what: str) -> None:
        """Describe the session for every answer, such as "this is a recording"."""
        self.news: list[AnyEvent | ChatState] = []
        self._what = what

    def send(self, order: Order) -> None:
        match order:
            case Load():
                self.notify(f"{self._what}: no other model can answer in it")
            case Prove():
                self.news.append(
                    ProofFinished(None, f"{self._what}: no model is here to verify it")
                )
            case FindAlternatives(turn, position):
                why = f"{self._what}: no model is here to ask; it holds only what was drafted"
                self.news.append(AlternativesFound(turn, position, message=why))
            case Branch(turn, position):
                why = f"{self._what}: no model is here to continue from there"
                self.news.append(AlternativesFound(turn, position, message=why))
            case Race():
                self.news.append(RaceFinished(message=f"{self._what}: no model is here to race"))
            case ForgetOldest():
                pass  # no context fills here
            case _:
                self.notify(self._what)

    def notify(self, message: str) -> None:
        self.news.append(SessionNotice(message))
