"""The models of the app: those there are, and those of its session.

MLX is imported in the engine thread, while the app is drawn. Only one thread may import at a time:
two concurrent imports of transformers each see a half-initialised module.
"""

from argparse import Namespace
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from mlxspec.device import backend
from mlxspec.device.memory import usable_gb
from mlxspec.drafting.entries import DrafterEntry, ModelEntry
from mlxspec.errors import MlxspecError
from mlxspec.params import Options, SamplingParams
from mlxspec_app.conversation.events import ModelChoice, TableProgress
from mlxspec_app.sessions.driver import ProgressCallback, ShouldStop
from mlxspec_app.user.paths import find_paths
from mlxspec_cli.arguments import options

if TYPE_CHECKING:
    from mlxspec import Conversation

IMPORTING = Lock()
"""Held during each import that needs MLX."""

_DEFAULT = "default"
_CHARACTERS_A_TOKEN = 4
_TABLE_S = 600  # of writing


class ChatCatalogue:
    """Lists models and drafters; implements `mlxspec_app.picker.catalogue.Catalogue`."""

    def __init__(self, loads: Options | None = None) -> None:
        """`loads` are the options with which models are loaded."""
        self._loads = loads or Options()

    @property
    def memory_gb(self) -> float:
        return usable_gb()

    def models(self) -> list[ModelEntry]:
        with IMPORTING:
            from mlxspec.drafting.catalogue import list_models, list_offers

        return [
            replace(entry, source="") if entry.source == _DEFAULT else entry
            for entry in (*list_models(), *list_offers())
        ]

    def recommended(self) -> ModelEntry | None:
        with IMPORTING:
            from mlxspec.drafting.catalogue import recommended_model

        return recommended_model()

    def fetch(self, source: str, on_progress: Callable[[int, int], None]) -> None:
        with IMPORTING:
            from mlxspec.loading.fetch.sources import find_source

        find_source(source or _DEFAULT, on_progress)

    def drafters(self, source: str, max_kv_size: int | None = None) -> list[DrafterEntry]:
        loads = replace(self._loads, max_kv_size=max_kv_size)
        found: list[DrafterEntry] = self._finder.find(source or _DEFAULT, loads)
        return found

    def forget_verdict(self, source: str, max_kv_size: int | None = None) -> None:
        loads = replace(self._loads, max_kv_size=max_kv_size)
        self._finder.forget_verdict(source or _DEFAULT, loads)

    @cached_property
    def _finder(self) -> Any:
        with IMPORTING:
            from mlxspec.drafting.catalogue import DrafterFinder

        return DrafterFinder()


class SessionModels:
    """The loaded models of a session; see `engine_session.Models`.

    `say` gets notices, `suggest` the sampling params that a loaded model recommends and the
    arguments that its chat template reads; `sampling` returns those of the next reply.
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
            from mlxspec import api
            from mlxspec.chat.conversation import Conversation

        with _as_our_error():
            given = self._chosen(choice)
            self._prepared = api.prepare(
                given.model or None, options(given), on_progress=on_progress, say=self.say
            )
        self._choice = choice
        engine = self._prepared.engine
        engine.budget.compares = True
        self.suggest(self._prepared.sampling, engine.tokenizer.chat_template.arguments())
        self._tell(self._prepared.choice)
        if self._prepared.context.options.learn is not None:
            store = find_paths(self._args.data_dir).store
            work = partial(_read_earlier, store, self._prepared.context)
            Thread(target=work, name="mlxspec-earlier", daemon=True).start()
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
        self._tell(measured)
        if measured.drafter == before:
            return False
        self._change_drafter(None)
        return True

    def make_table(self) -> Generator[TableProgress]:
        from mlxspec.train.own_table import TableVerdict, make_own_table

        assert self._prepared is not None
        with closing(make_own_table(self._prepared.context.loaded, _TABLE_S)) as making:
            for told in making:
                if isinstance(told, TableVerdict):
                    if told.is_better:  # the same drafter: nobody waits for `auto` to measure here
                        self._change_drafter(None, self._prepared.choice.drafter)
                    self.say(str(told))
                else:
                    yield TableProgress(told.share, told.num_tokens)

    def release(self) -> None:
        self._prepared = None

    def _change_drafter(
        self, on_progress: ProgressCallback | None, drafter: str | None = None
    ) -> None:
        """Build the chosen drafter anew, or another one."""
        from mlxspec.drafting import engines

        assert self._prepared is not None
        given = options(self._chosen(self._choice))
        if drafter is not None:
            given = replace(given, drafter=drafter)
        with _as_our_error():
            self._prepared = engines.change_drafter(
                self._prepared,
                given,
                on_progress=on_progress,
                say=self.say,
                sampling=self.sampling(),
            )
        self._tell(self._prepared.choice)

    def _tell(self, choice: Any) -> None:
        """Say what was measured just now; the figures are those of `mlxspec doctor`."""
        words, _, figures = choice.reason.partition(" (")
        if figures.endswith(")"):
            self.say(f"drafter {choice.drafter}: {words}")

    def _chosen(self, choice: ModelChoice) -> Namespace:
        draft_model = self._args.draft_model if choice == self._first else None
        return Namespace(**{**vars(self._args), **asdict(choice), "draft_model": draft_model})


def _read_earlier(store: Path, context: Any) -> None:
    """Give the drafters the texts of the stored chats, the newest ones."""
    with IMPORTING:
        from mlxspec.chat.prompts import ChatPrompts
        from mlxspec.drafters.search.earlier import MOST_TOKENS
    from mlxspec_app.store.reader import stored_branches

    tokenizer = context.loaded.tokenizer
    prompts, texts = ChatPrompts(tokenizer, say=lambda line: None), []
    for branch in stored_branches(store, MOST_TOKENS * _CHARACTERS_A_TOKEN):
        with suppress(MlxspecError, ValueError):  # a template may refuse what another one wrote
            messages = [{"role": role, "content": text} for role, text in branch]
            texts.append(tokenizer.encode(prompts.render(messages, None, {})))
    context.earlier.add(texts)


@contextmanager
def _as_our_error() -> Iterator[None]:
    """Turn an invalid argument, such as an unknown drafter, into an error for the user."""
    try:
        yield
    except ValueError as error:
        raise MlxspecError(str(error)) from error
