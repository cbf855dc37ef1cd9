"""The arms of mlxspec itself: one engine, and a drafter for each.

A word of `--arms` is one of `--drafter`, but `plain` is none, and a plus sign joins what is to be
one pool. Every conversation begins with a drafter that has learned nothing, because one that has
seen a reply once would only have to recite it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from mlxspec.api import Say, make_cache
from mlxspec.bench.sample import Arm, Reply, Task, Watch
from mlxspec.choosing.assembly import Site, build_drafter, check_drafter
from mlxspec.choosing.auto import choose_drafter
from mlxspec.choosing.costs import budget_for
from mlxspec.decoder import Decoder
from mlxspec.drafters.base import Drafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.engine import Engine
from mlxspec.events import DrafterFailed, DraftVerified, GenerationFinished, PlainDecoded
from mlxspec.loading import LoadedModel
from mlxspec.options import Options

PLAIN = "plain"


class OwnArm:
    """The engine with one drafter.

    Attributes:
        name: What it is called.
    """

    def __init__(self, name: str, engine: Engine, make_drafter: Callable[[], Drafter]) -> None:
        """Make an arm; `make_drafter` returns a drafter that has learned nothing."""
        self.name = name
        self._engine = engine
        self._make_drafter = make_drafter
        self._drafter = make_drafter()

    def begin(self) -> None:
        self._drafter = self._make_drafter()

    def write(self, prompt: Sequence[int], task: Task) -> Reply:
        engine = self._engine
        engine.target.reset()
        engine.drafter = self._drafter
        tokens: list[int] = []
        fault, stats = "", {}
        watch = Watch()
        for event in engine.generate(list(prompt), task.params()):
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


def make_site(loaded: LoadedModel, options: Options, say: Say) -> Site:
    """Return what drafters are built for: an engine without one, and where to look for them."""
    cache_like = partial(make_cache, max_kv_size=options.max_kv_size, keep=options.keep)
    cache = cache_like(loaded.config, kv_bits=options.kv_bits)
    return Site(
        engine=Engine(
            Decoder(loaded.model, cache),
            NoDrafter(),
            loaded.tokenizer,
            name=loaded.name,
            weights=loaded.weights,
            budget=budget_for(loaded, cache),
        ),
        loaded=loaded,
        make_cache=cache_like,
        draft_model=options.draft_model,
        lookahead=options.lookahead,
        say=say,
    )


def check_arms(names: Sequence[str]) -> None:
    """Raise ValueError for what cannot be an arm, before anything is loaded."""
    if not names:
        raise ValueError("--arms names nobody: give words of --drafter, or plain")
    if len(set(names)) < len(names):
        raise ValueError(f"an arm stands twice in {', '.join(names)}: name each once")
    for name in names:
        drafter = _drafter_of(name)
        check_drafter(drafter, has_draft_model=False)


def own_arms(names: Sequence[str], site: Site) -> list[Arm]:
    """Return the arms that these words name.

    Raises:
        MlxspecError: A drafter is not here, or cannot serve this target.
    """
    return [_own_arm(name, site) for name in names]


def make_drafter(name: str, site: Site) -> Drafter:
    """Return the drafter of an arm; it has learned nothing."""
    drafter = _drafter_of(name)
    return build_drafter(choose_drafter(site).drafter if drafter == "auto" else drafter, site)


def _own_arm(name: str, site: Site) -> Arm:
    drafter = _drafter_of(name)
    if drafter == "auto":
        drafter = choose_drafter(site).drafter
        name = f"auto={drafter.replace(',', '+')}"
    return OwnArm(name, site.engine, partial(build_drafter, drafter, site))


def _drafter_of(name: str) -> str:
    """Return what `--drafter` calls an arm."""
    if name == PLAIN:
        return "none"
    return name if Path(name).expanduser().exists() else name.replace("+", ",")
