"""The conversation while no model is loaded: at the start, during a change, after a failure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn

from mlxspec.errors import MlxspecError
from mlxspec.params import GenerationParams
from mlxspec.trace.alternatives import Alternative
from mlxspec.trace.events import Event
from mlxspec.trace.proof import Proof
from mlxspec_app.conversation.session import ProgressCallback


class NoModel:
    """Stores the turns until a model continues them; see `ConversationLike`."""

    def __init__(self, system: str | None = None) -> None:
        self.system = system
        self.forgets_oldest = False
        self.turns: list[tuple[str, str]] = []
        self.reply_tokens: list[Sequence[int]] = []
        self.num_forgotten = 0

    def reply(
        self,
        text: str,
        params: GenerationParams,
        *,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[Event]:
        _refuse()

    def regenerate(
        self, params: GenerationParams, *, should_stop: Callable[[], bool] = lambda: False
    ) -> Iterator[Event]:
        _refuse()

    def prove(
        self,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        on_progress: ProgressCallback = lambda done, total: None,
    ) -> Proof:
        _refuse()

    def alternatives(self, turn: int, position: int) -> list[Alternative]:
        _refuse()

    def branch(
        self,
        turn: int,
        position: int,
        token: int,
        params: GenerationParams,
        *,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[Event]:
        _refuse()

    def fits_alone(self, text: str) -> bool:
        return True

    def race(
        self,
        text: str,
        params: GenerationParams,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        on_run: Callable[[str], None] = lambda name: None,
    ) -> tuple[list[Event], list[Event]]:
        _refuse()

    def measure_cost(self, *, should_stop: Callable[[], bool] = lambda: False) -> None:
        return None

    def reset(self) -> None:
        self.turns, self.reply_tokens = [], []

    def restore(
        self,
        turns: Iterable[tuple[str, str]],
        system: str | None = None,
        tokens: Sequence[Sequence[int]] = (),
    ) -> None:
        self.turns, self.reply_tokens = list(turns), list(tokens)
        self.system = system

    def cut(self, num_turns: int) -> None:
        del self.turns[num_turns:]
        del self.reply_tokens[num_turns:]


def _refuse() -> NoReturn:
    raise MlxspecError("no model is loaded: choose one with /model")
