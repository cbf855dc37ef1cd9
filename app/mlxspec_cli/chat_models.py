"""Loads the models of the app's session, and changes their drafters.

MLX is imported with the first model, in the engine thread, while the app is drawn.
"""

from argparse import Namespace
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mlxspec.device import backend
from mlxspec.errors import MlxspecError
from mlxspec.params import SamplingParams
from mlxspec_app.conversation.events import ModelChoice
from mlxspec_app.sessions.driver import ProgressCallback, ShouldStop
from mlxspec_cli.arguments import options
from mlxspec_cli.chat_facts import IMPORTING

if TYPE_CHECKING:
    from mlxspec import Conversation


class SessionModels:
    """The loaded models of a session; see `engine_session.Models`.

    Attributes:
        say: Called with a notice for the user.
        suggest: Called with the sampling params that a loaded model recommends, and with the
            arguments that its chat template reads.
        sampling: Returns the sampling params of the next reply.
    """

    def __init__(self, args: Namespace, first: ModelChoice) -> None:
        """Load nothing yet; `args` apply to all models, `--draft-model` to `first` only."""
        self.say: Callable[[str], None] = lambda line: None
        self.suggest: Callable[[Mapping[str, float], Collection[str]], None] = lambda *_: None
        self.sampling: Callable[[], SamplingParams] = SamplingParams
        self._args, self._first, self._choice = args, first, first
        self._prepared: Any = None  # a `Prepared`, whose module imports MLX

    def open_conversation(
        self, choice: ModelChoice, on_progress: ProgressCallback
    ) -> "Conversation":
        with IMPORTING:
            backend.check()
            from mlxspec.chat.conversation import Conversation
            from mlxspec_cli.opening import open_engine

        with _as_our_error():
            self._prepared = open_engine(self._chosen(choice), on_progress, self.say)
        self._choice = choice
        engine = self._prepared.engine
        self.suggest(self._prepared.sampling, engine.tokenizer.chat_template.arguments())
        self._tell()
        return Conversation(engine, say=self.say)

    def change_drafter(self, choice: ModelChoice, on_progress: ProgressCallback) -> None:
        before, self._choice = self._choice, choice
        try:
            self._change_drafter(on_progress)
        except BaseException:
            self._choice = before
            raise

    def note_reply(self, speedup: float, is_sampled: bool) -> str:
        from mlxspec.drafting.auto import note_reply

        if self._prepared is None:
            return ""
        return note_reply(self._prepared.choice, speedup, is_sampled=is_sampled)

    def choose_again(self, sampling: SamplingParams, should_stop: ShouldStop) -> bool:
        from mlxspec.drafting import engines

        assert self._prepared is not None
        before = self._prepared.choice.drafter
        measured = engines.measure_again(self._prepared, sampling, should_stop)
        if measured is None:
            return False
        if measured.drafter == before:
            self.say(f"drafter {before} stays, {measured.reason}")
            return False
        self._change_drafter(None)
        return True

    def release(self) -> None:
        self._prepared = None

    def _change_drafter(self, on_progress: ProgressCallback | None) -> None:
        from mlxspec.drafting import engines

        assert self._prepared is not None
        given = options(self._chosen(self._choice))
        with _as_our_error():
            self._prepared = engines.change_drafter(
                self._prepared,
                given,
                on_progress=on_progress,
                say=self.say,
                sampling=self.sampling(),
            )
        self._tell()

    def _tell(self) -> None:
        assert self._prepared is not None
        choice = self._prepared.choice
        self.say(f"drafter {choice.drafter}, {choice.reason}")

    def _chosen(self, choice: ModelChoice) -> Namespace:
        draft_model = self._args.draft_model if choice == self._first else None
        return Namespace(**{**vars(self._args), **asdict(choice), "draft_model": draft_model})


@contextmanager
def _as_our_error() -> Iterator[None]:
    """Turn an invalid argument, such as an unknown drafter, into an error for the user."""
    try:
        yield
    except ValueError as error:
        raise MlxspecError(str(error)) from error
