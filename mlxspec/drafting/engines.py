"""Gives an engine its drafter: when a target is loaded, and when a chat takes another one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from os.path import expanduser
from pathlib import Path

from mlxspec.budget import Budget
from mlxspec.device.turns import building_turn, device_turn
from mlxspec.drafters.base import Drafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.table.memory import TableMemory
from mlxspec.drafting.auto import Choice, choose_drafter, measure
from mlxspec.drafting.measured import budget_for
from mlxspec.drafting.names import check_drafter
from mlxspec.drafting.registry import DrafterContext, build_drafter, table_memory
from mlxspec.engine.engine import Engine
from mlxspec.errors import Progress, Say, warn
from mlxspec.kv.cache import make_cache
from mlxspec.kv.prefix_files import PrefixFiles
from mlxspec.loading import LoadedModel
from mlxspec.loading.exactness import rows_key
from mlxspec.loading.room import context_that_fits
from mlxspec.params import GREEDY, Options, SamplingParams


@dataclass(frozen=True)
class Prepared:
    """An engine, and how its drafter was chosen."""

    context: DrafterContext
    choice: Choice
    make_drafter: Callable[[], Drafter]  # returns a new drafter that has learned nothing yet
    memory: TableMemory | None = None  # what tables learned in earlier runs

    @property
    def engine(self) -> Engine:
        return self.context.engine

    @property
    def sampling(self) -> Mapping[str, float]:
        """The sampling params that the target's authors recommend; only a chat starts with them."""
        return self.context.loaded.sampling


def prepare_loaded(
    loaded: LoadedModel,
    options: Options,
    *,
    on_progress: Progress | None = None,
    say: Say | None = None,
) -> Prepared:
    """Return an engine with a drafter for a loaded target; arguments as in `mlxspec.load`."""
    check_drafter(options.asked, has_draft_model=options.draft_model is not None)
    with building_turn():  # lazy arrays of the shared stream can be evaluated by any thread
        context = make_drafter_context(loaded, options, say or warn, on_progress=on_progress)
        return _with_drafter(context)


def _with_drafter(context: DrafterContext, memory: TableMemory | None = None) -> Prepared:
    """Give the engine of a context its drafter; `memory` is that of the previous one, if any."""
    engine, options = context.engine, context.options
    asked = options.asked
    if asked != "none":
        engine.measure_costs()
    choice = choose_drafter(context) if asked == "auto" else Choice(asked, "as requested")
    if memory is None and options.learn is not None:
        memory = table_memory(choice.drafter, context, options.learn)
        if memory is not None:
            engine.at_close(memory.save)
    make_drafter = partial(build_drafter, choice.drafter, context, memory)
    engine.drafter = make_drafter()  # not earlier: a trained drafter needs the engine's target
    return Prepared(context, choice, make_drafter, memory)


def change_drafter(
    prepared: Prepared,
    options: Options,
    *,
    on_progress: Progress | None = None,
    say: Say | None = None,
    sampling: SamplingParams = GREEDY,
) -> Prepared:
    """Give a prepared engine another drafter; target and cache stay.

    If the drafter reads hidden states of earlier tokens, the next reply prefills the text again.
    `options` are those with which the engine was prepared, except the drafter and the draft model;
    `sampling` is that of the replies, which `auto` uses in its measurement. After an error (a
    `MlxspecError` if the drafter cannot be had, `ValueError` if it is not known), the engine has
    its old drafter again.
    """
    check_drafter(options.asked, has_draft_model=options.draft_model is not None)
    engine = prepared.engine
    context = replace(
        prepared.context,
        options=options,
        on_progress=on_progress,
        say=say or warn,
        sampling=sampling,
    )
    with building_turn():
        engine.drafter = NoDrafter()  # two draft models at once may not fit in memory
        try:
            return _with_drafter(context, prepared.memory)
        except BaseException:
            engine.drafter = prepared.make_drafter()
            raise


def measure_again(
    prepared: Prepared, sampling: SamplingParams, should_stop: Callable[[], bool]
) -> Choice | None:
    """Measure again which drafter is fastest, because replies contradict the choice of `auto`.

    The engine keeps its drafter and its cache; `change_drafter` with `auto` switches to the chosen
    one. `sampling` is that of the replies, on which the acceptance depends. `should_stop` is called
    before each trial, which takes about a second; None is returned if it stopped them.
    """
    with device_turn():
        context = replace(prepared.context, sampling=sampling)
        return measure(context, prepared.choice.key, should_stop)


def make_drafter_context(
    loaded: LoadedModel,
    options: Options,
    say: Say,
    *,
    budget: Budget | None = None,
    on_progress: Progress | None = None,
) -> DrafterContext:
    """Return the context in which drafters are built: an engine without one, and the options.

    A `budget` of None is one that measures what pays here.
    """
    cache = make_cache(loaded.config, options)
    engine = Engine(
        loaded.make_decoder(loaded.model, cache),
        NoDrafter(),
        loaded.tokenizer,
        name=loaded.name,
        weights=loaded.weights,
        budget=budget or budget_for(loaded, cache),
        chain_rule=options.chain_rule,
        exact=options.exact,
    )
    _bound_context(engine, options, say)
    if options.prefixes is not None and engine.target.can_adopt and cache.can_be_cut:
        folder = Path(expanduser(options.prefixes))
        engine.prefix_files = PrefixFiles(folder, rows_key(engine.target))
    return DrafterContext(engine, loaded, options, on_progress=on_progress, say=say)


def _bound_context(engine: Engine, options: Options, say: Say) -> None:
    """Limit the context to the keys and values that fit: the system would kill a larger process."""
    most, fitting = engine.context_length, context_that_fits(engine.target.model, options.kv_bits)
    if most is None or fitting is None or fitting >= most:
        return
    engine.target.context_length = fitting
    say(
        f"warning: {engine.name} reads {fitting:,} of its {most:,} tokens here: more do not fit in "
        "what the GPU recommends to take; with --kv-bits more do, and with --max-kv-size it scrolls"
    )
