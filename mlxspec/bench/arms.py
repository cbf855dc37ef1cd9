"""The arms of mlxspec itself: one engine, and one drafter per arm.

A word of `--arms` is a word of `--drafter`; `plain` means `none`, and a plus sign joins drafters to
a pool. Every conversation starts with a new drafter: one that has seen the reply before would only
repeat it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from os.path import expanduser
from pathlib import Path

from mlxspec.bench.sample import Arm, Reply, Task, Watch
from mlxspec.budget import Budget
from mlxspec.drafters.base import Drafter
from mlxspec.drafting.auto import choose_drafter
from mlxspec.drafting.names import check_drafter
from mlxspec.drafting.registry import DrafterContext, build_drafter
from mlxspec.engine.engine import Engine
from mlxspec.trace.events import DrafterFailed, DraftVerified, GenerationFinished, PlainDecoded

PLAIN = "plain"


class OwnArm:
    """The engine with one drafter."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        make_drafter: Callable[[], Drafter],
        budget: Budget | None = None,
    ) -> None:
        """Make an arm; if `budget` is None, the engine's own budget decides."""
        self.name = name
        self._engine = engine
        self._make_drafter = make_drafter
        self._budget = budget
        self._drafter = make_drafter()

    def begin(self) -> None:
        self._drafter = self._make_drafter()

    def write(self, prompt: Sequence[int], task: Task) -> Reply:
        engine = self._engine
        engine.target.reset()
        tokens: list[int] = []
        fault, stats = "", {}
        watch = Watch()
        events = engine.generate(
            list(prompt), task.params(), drafter=self._drafter, budget=self._budget
        )
        for event in events:
            match event:
                case DraftVerified() | PlainDecoded():
                    watch.saw(len(event.emit))
                    tokens += [token.token for token in event.emit]
                case DrafterFailed():
                    fault = event.message
                case GenerationFinished():
                    stats = dict(event.stats)
        forwards = stats["target_forwards"]
        rows = forwards + stats["drafted"]
        return watch.reply(tokens, prompt, forwards, rows, stats=stats, fault=fault)


def check_arms(names: Sequence[str]) -> None:
    """Raise ValueError for words that are not arms, before a model is loaded."""
    if not names:
        raise ValueError("--arms is empty: give words of --drafter, or plain")
    if len(set(names)) < len(names):
        raise ValueError(f"an arm stands twice in {', '.join(names)}: name each once")
    for name in names:
        drafter = _drafter_of(name)
        check_drafter(drafter, has_draft_model=False)


def own_arms(
    names: Sequence[str], context: DrafterContext, budget: Budget | None = None
) -> list[Arm]:
    """Return the arms that these words name; if `budget` is None, the engine's own budget decides.

    Raises `MlxspecError` if a drafter is missing, or does not fit this target.
    """
    return [_own_arm(name, context, budget) for name in names]


def make_drafter(name: str, context: DrafterContext) -> Drafter:
    """Return a new drafter for an arm."""
    drafter = _drafter_of(name)
    return build_drafter(choose_drafter(context).drafter if drafter == "auto" else drafter, context)


def _own_arm(name: str, context: DrafterContext, budget: Budget | None) -> Arm:
    drafter = _drafter_of(name)
    if drafter == "auto":
        drafter = choose_drafter(context).drafter
        name = f"auto={drafter.replace(',', '+')}"
    return OwnArm(name, context.engine, partial(build_drafter, drafter, context), budget)


def _drafter_of(name: str) -> str:
    """Return the word of `--drafter` for an arm."""
    if name == PLAIN:
        return "none"
    return name if Path(expanduser(name)).exists() else name.replace("+", ",")
