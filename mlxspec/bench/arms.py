"""The arms of mlxspec itself: one engine, and a drafter for each.

A word of `--arms` is one of `--drafter`, but `plain` is none, and a plus sign joins what is to be
one pool. Every conversation begins with a drafter that has learned nothing, because one that has
seen a reply once would only have to recite it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from os.path import expanduser
from pathlib import Path

from mlxspec.bench.sample import Arm, Reply, Task, Watch
from mlxspec.budget import Budget
from mlxspec.drafters.base import Drafter
from mlxspec.drafting.auto import choose_drafter
from mlxspec.drafting.registry import Site, build_drafter, check_drafter
from mlxspec.engine.engine import Engine
from mlxspec.trace.events import DrafterFailed, DraftVerified, GenerationFinished, PlainDecoded

PLAIN = "plain"


class OwnArm:
    """The engine with one drafter.

    Attributes:
        name: What it is called.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        make_drafter: Callable[[], Drafter],
        budget: Budget | None = None,
    ) -> None:
        """Make an arm.

        Args:
            name: What it is called.
            engine: Writes the replies.
            make_drafter: Returns a drafter that has learned nothing.
            budget: Decides how much of its drafts is verified; None for the engine's own.
        """
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
    """Raise ValueError for what cannot be an arm, before anything is loaded."""
    if not names:
        raise ValueError("--arms names nobody: give words of --drafter, or plain")
    if len(set(names)) < len(names):
        raise ValueError(f"an arm stands twice in {', '.join(names)}: name each once")
    for name in names:
        drafter = _drafter_of(name)
        check_drafter(drafter, has_draft_model=False)


def own_arms(names: Sequence[str], site: Site, budget: Budget | None = None) -> list[Arm]:
    """Return the arms that these words name.

    Args:
        names: The words.
        site: The target.
        budget: Decides how much all of them verify; None for the engine's own.

    Raises:
        MlxspecError: A drafter is not here, or cannot serve this target.
    """
    return [_own_arm(name, site, budget) for name in names]


def make_drafter(name: str, site: Site) -> Drafter:
    """Return the drafter of an arm; it has learned nothing."""
    drafter = _drafter_of(name)
    return build_drafter(choose_drafter(site).drafter if drafter == "auto" else drafter, site)


def _own_arm(name: str, site: Site, budget: Budget | None) -> Arm:
    drafter = _drafter_of(name)
    if drafter == "auto":
        drafter = choose_drafter(site).drafter
        name = f"auto={drafter.replace(',', '+')}"
    return OwnArm(name, site.engine, partial(build_drafter, drafter, site), budget)


def _drafter_of(name: str) -> str:
    """Return what `--drafter` calls an arm."""
    if name == PLAIN:
        return "none"
    return name if Path(expanduser(name)).exists() else name.replace("+", ",")
