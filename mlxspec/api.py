"""The Python interface: `load` an engine, `stream_text` from it.

import mlxspec

engine = mlxspec.load()
for text in mlxspec.stream_text(engine, "The capital of France is"):
    print(text, end="", flush=True)

Any thread may load, and several threads may use an engine at once: they take turns, a round at a
time. `with mlxspec.load() as engine:` frees the memory at the end.

Arguments of `load` that need more than one line:

- `source`: the default model is downloaded once.
- `drafter`: a word is "none", "suffix", "table", "pool", "model", "medusa", "eagle3" or "exit". A
  list becomes one pool. "auto" measures which is fastest here.
- `depth`: also the length of the chain of a drafter that drafts chains; for a draft model it
  replaces `lookahead`.
- `kv_bits`: the output distribution is that of the quantised cache, for plain decoding and for
  every drafter.
- `learn`: the next run with this target starts from the table in this folder. Parts of the text of
  chats can be reconstructed from it.
- `exit_threshold`: "exit" continues while its best token has this probability; None for the
  threshold that is stored with the exit.
- `dtype`: "auto" is float32 on a CPU, where half precision works but is slow; on a GPU the dtype of
  the stored weights, or bfloat16 if float16 is too small for the model.
- `changes`: a `mlxspec.loading.Changes`, with the values that `mlxspec.compat.load` takes for
  mlx-lm.
- `chain_rule`: the settings of a reply may name another; the output distribution is the same.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from typing import Any

import mlx.nn as nn

from mlxspec.budget import Budget
from mlxspec.device import backend
from mlxspec.device.turns import building_turn, device_turn
from mlxspec.drafters.base import Drafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.table.memory import TableMemory
from mlxspec.drafting.auto import Choice, choose_again, choose_drafter
from mlxspec.drafting.measured import budget_for
from mlxspec.drafting.names import check_drafter
from mlxspec.drafting.registry import (
    HOST_DRAFTERS,
    DrafterContext,
    build_drafter,
    table_memory,
)
from mlxspec.engine.engine import Engine
from mlxspec.errors import WARNING, UnsupportedOperationError
from mlxspec.kv.cache import make_cache
from mlxspec.loading import (
    UNCHANGED,
    Changes,
    LoadedModel,
    Room,
    adapted,
    load_model,
    wrapped_tokenizer,
)
from mlxspec.loading.room import context_that_fits
from mlxspec.params import (
    DEFAULT_KEEP,
    DEFAULT_LOOKAHEAD,
    GREEDY,
    ChainRule,
    GenerationParams,
    Options,
    Port,
    SamplingParams,
    checks,
)
from mlxspec.trace.events import DraftVerified, GenerationFinished, PlainDecoded, text_of

__all__ = [
    "HOST_DRAFTERS",
    "Options",
    "Prepared",
    "Progress",
    "Say",
    "change_drafter",
    "load",
    "load_target",
    "make_cache",
    "make_drafter_context",
    "measure_again",
    "prepare",
    "prepare_loaded",
    "stream_text",
    "wrap",
]

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in total."""

Say = Callable[[str], None]
"""Called with one line of text for the user."""


@dataclass(frozen=True)
class Prepared:
    """An engine, and how its drafter was chosen.

    Attributes:
        engine: The engine.
        choice: The chosen drafter, and the reason.
        make_drafter: Returns a new drafter of this kind, which has learned nothing yet.
        context: The context in which drafters are built.
        memory: The data that tables learned in earlier runs, or None.
        sampling: The sampling params that the target's authors recommend, by name; only a chat
            starts with them.
    """

    engine: Engine
    choice: Choice
    make_drafter: Callable[[], Drafter]
    context: DrafterContext
    memory: TableMemory | None = None
    sampling: Mapping[str, float] = field(default_factory=dict)


def load(
    source: str | PathLike[str] | None = None,
    *,
    drafter: str | PathLike[str] = "auto",
    draft_model: str | PathLike[str] | None = None,
    lookahead: int = DEFAULT_LOOKAHEAD,
    max_kv_size: int | None = None,
    keep: int = DEFAULT_KEEP,
    kv_bits: int | None = None,
    learn: str | PathLike[str] | None = None,
    exit_threshold: float | None = None,
    dtype: str = "auto",
    port: Port = "auto",
    adapter: str | PathLike[str] | None = None,
    branching: int | None = None,
    depth: int | None = None,
    chain_rule: ChainRule = "block",
    hosts: str | None = None,
    group: Any = None,
    changes: Changes = UNCHANGED,
    on_progress: Progress | None = None,
    say: Say | None = None,
) -> Engine:
    """Load a target and its drafter; the docstring of this module says more.

    Args:
        source: A folder, a GGUF file or a hub id; None for the default model.
        drafter: A word, a file, folder or hub id, or several of these separated by commas.
        draft_model: Checkpoint of a draft model; it makes "model" the default drafter.
        lookahead: Longest chain that a draft model drafts.
        max_kv_size: Rows of a rotating cache; None for a cache that grows.
        keep: Number of first tokens that a rotating cache never evicts.
        kv_bits: 8 or 4 for a quantised cache, which changes the output distribution; else None.
        learn: Folder in which the table stores what it learns; None stores nothing.
        exit_threshold: Probability above which the drafter "exit" continues, in (0, 1].
        dtype: "float16", "bfloat16" or "float32": the dtype to compute in; or "auto".
        port: "own" or "mlx-lm" allows only that code; "auto" prefers our own.
        adapter: A folder with adapters (LoRA), which mlx-lm applies.
        branching: Maximum number of children of a draft node; None leaves it to the drafter.
        depth: Longest path of a draft; None leaves it to the drafter.
        chain_rule: Rule that verifies sampled chains, "block" or "token".
        hosts: The ranks of the target, if one machine cannot hold it: a number of local processes,
            addresses separated by commas, or a hostfile of `mlx.launch`.
        group: The group of a script that `mlx.launch` has started on all ranks. On rank 0 this
            returns an engine; on the others it computes for rank 0, and ends the process with it.
        changes: Changes of the model's config and tokenizer, and its revision on the hub.
        on_progress: Called with the downloaded bytes and all bytes.
        say: Called with one line for the user; None reports only problems, as Python warnings.

    Raises:
        MlxspecError: `source` or `drafter` was not found, or cannot run.
        ValueError: An argument is of the wrong type or out of range, or the drafter is not known.
    """
    options = Options(
        drafter=drafter,
        draft_model=draft_model,
        lookahead=lookahead,
        max_kv_size=max_kv_size,
        keep=keep,
        kv_bits=kv_bits,
        learn=learn,
        exit_threshold=exit_threshold,
        dtype=dtype,
        port=port,
        adapter=adapter,
        branching=branching,
        depth=depth,
        chain_rule=chain_rule,
        hosts=hosts,
    )
    return prepare(
        source, options, group=group, changes=changes, on_progress=on_progress, say=say
    ).engine


def wrap(
    model: Any,
    tokenizer: Any,
    *,
    drafter: str | PathLike[str] = "auto",
    name: str = "",
    say: Say | None = None,
    **options: Any,
) -> Engine:
    """Return an engine for the model and tokenizer that `mlx_lm.load` returned.

        model, tokenizer = mlx_lm.load("mlx-community/Qwen3-4B-4bit")
        engine = mlxspec.wrap(model, tokenizer)

    The model's weights do not change, and mlx-lm can still use it. At its first use it is compared
    with mlx-lm's plain decoding, once per machine.

    Args:
        model: A model of mlx-lm.
        tokenizer: Its tokenizer: mlx-lm's wrapper, or a fast tokenizer of transformers.
        drafter: As in `load`.
        name: Name for messages; "" for the model's type.
        say: As in `load`.
        options: Other arguments of `load`, except those that choose what is loaded.

    Raises:
        UnsupportedModelError: The model cannot be a target.
        ValueError: An argument is of the wrong type or out of range, or not known.
    """
    for word in sorted({"port", "adapter", "dtype", "hosts"} & set(options)):
        raise ValueError(f"{word} is chosen when a model is loaded: pass it to load, not to wrap")
    try:
        settings = Options(drafter=drafter, **options)
    except TypeError as error:
        raise ValueError(f"wrap has no such argument: {error}") from error
    check_drafter(settings.asked, has_draft_model=settings.draft_model is not None)
    backend.check()
    loaded = adapted(
        checks.instance("model", model, nn.Module),
        wrapped_tokenizer(tokenizer),
        name=name or getattr(model, "model_type", type(model).__name__),
        say=say or _warn,
    )
    return prepare_loaded(loaded, settings, say=say).engine


def prepare(
    source: str | PathLike[str] | None = None,
    options: Options | None = None,
    *,
    group: Any = None,
    changes: Changes = UNCHANGED,
    on_progress: Progress | None = None,
    say: Say | None = None,
) -> Prepared:
    """Do what `load` does, and also return how the drafter was chosen."""
    options = checks.instance("options", Options() if options is None else options, Options)
    if source is not None:
        checks.name_or_path("source", source)
    for name, told in (("on_progress", on_progress), ("say", say)):
        if told is not None:
            checks.function(name, told)
    check_drafter(options.asked, has_draft_model=options.draft_model is not None)
    backend.check()
    loaded = load_target(
        source, options, group=group, changes=changes, on_progress=on_progress, say=say
    )
    try:
        prepared = prepare_loaded(loaded, options, on_progress=on_progress, say=say)
    except BaseException:
        loaded.free()
        raise
    prepared.engine.at_close(loaded.free)
    return prepared


def load_target(
    source: str | PathLike[str] | None,
    options: Options,
    *,
    group: Any = None,
    changes: Changes = UNCHANGED,
    on_progress: Progress | None = None,
    say: Say | None = None,
) -> LoadedModel:
    """Load only the target, here or on several ranks; arguments as in `load`."""
    checks.instance("changes", changes, Changes)
    if options.hosts is None and group is None:
        return load_model(
            source,
            dtype=options.dtype,
            port=options.port,
            adapter=options.adapter,
            changes=changes,
            room=Room(options.max_kv_size, options.kv_bits),
            on_progress=on_progress,
            say=say or _warn,
        )
    # Imported here: few calls need these modules and mlx.launch.
    from mlxspec.distributed import following, ranks

    if changes != UNCHANGED:
        raise UnsupportedOperationError(
            "changes of a model's config, tokenizer or revision are for one machine: store the "
            "changed model, and load that"
        )
    if group is not None and group.rank() != 0:
        following.follow(group, source, options)
    found = ranks.start(str(options.hosts)) if group is None else ranks.joined(group)
    return found.load(source, options, on_progress=on_progress, say=say or _warn)


def prepare_loaded(
    loaded: LoadedModel,
    options: Options,
    *,
    on_progress: Progress | None = None,
    say: Say | None = None,
) -> Prepared:
    """Do what `prepare` does for a loaded target."""
    asked = options.asked
    check_drafter(asked, has_draft_model=options.draft_model is not None)
    with building_turn():  # lazy arrays of the shared stream can be evaluated by any thread
        return _prepared(loaded, options, asked, say=say or _warn, on_progress=on_progress)


def _prepared(
    loaded: LoadedModel, options: Options, asked: str, *, say: Say, on_progress: Progress | None
) -> Prepared:
    context = make_drafter_context(loaded, options, say, on_progress=on_progress)
    return _with_drafter(context, options, asked, loaded.sampling)


def _with_drafter(
    context: DrafterContext,
    options: Options,
    asked: str,
    sampling: Mapping[str, float],
    memory: TableMemory | None = None,
) -> Prepared:
    """Give the engine of a context its drafter; `memory` is that of the previous one, if any."""
    engine = context.engine
    if asked != "none":
        engine.measure_costs()
    choice = choose_drafter(context) if asked == "auto" else Choice(asked, "as requested")
    if memory is None and options.learn is not None:
        memory = table_memory(choice.drafter, context, options.learn)
        if memory is not None:
            engine.at_close(memory.save)
    make_drafter = partial(build_drafter, choice.drafter, context, memory)
    _give(engine, make_drafter())  # not earlier: a trained drafter needs the engine's target
    return Prepared(engine, choice, make_drafter, context, memory, sampling)


def _give(engine: Engine, drafter: Drafter) -> None:
    engine.drafter = drafter


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

    Args:
        prepared: The engine; after an error, it has its old drafter again.
        options: The options with which it was prepared, except the drafter and the draft model.
        on_progress: As in `load`.
        say: As in `load`.
        sampling: The sampling params of the replies, which `auto` uses in its measurement.

    Raises:
        MlxspecError: The drafter was not found, or cannot run.
        ValueError: The drafter is not known.
    """
    check_drafter(options.asked, has_draft_model=options.draft_model is not None)
    engine = prepared.engine
    context = replace(
        prepared.context,
        draft_model=options.draft_model,
        on_progress=on_progress,
        say=say or _warn,
        sampling=sampling,
    )
    with building_turn():
        _give(engine, NoDrafter())  # two draft models at once may not fit in memory
        try:
            return _with_drafter(
                context, options, options.asked, prepared.sampling, prepared.memory
            )
        except BaseException:
            _give(engine, prepared.make_drafter())
            raise


def measure_again(
    prepared: Prepared, sampling: SamplingParams, should_stop: Callable[[], bool]
) -> Choice | None:
    """Measure again which drafter is fastest, because replies contradict the choice of `auto`.

    The engine keeps its drafter; `change_drafter` with `auto` switches to the chosen one.

    Args:
        prepared: The engine; its cache does not change.
        sampling: The sampling params of the replies, on which the acceptance depends.
        should_stop: Called before each trial, which takes about a second; True stops.

    Returns:
        The choice; None if it was stopped.
    """
    with device_turn():
        context = replace(prepared.context, sampling=sampling)
        return choose_again(context, prepared.choice, should_stop)


def make_drafter_context(
    loaded: LoadedModel,
    options: Options,
    say: Say,
    *,
    budget: Budget | None = None,
    on_progress: Progress | None = None,
) -> DrafterContext:
    """Return the context in which drafters are built: an engine without one, and the options.

    Args:
        loaded: The target.
        options: Options of its cache and of drafters; the caller chooses the drafter.
        say: Called with one line of text for the user.
        budget: Decides how many draft nodes a round verifies; None for a budget that measures what
            pays here.
        on_progress: Called with the downloaded bytes and all bytes.
    """
    cache_like = partial(make_cache, max_kv_size=options.max_kv_size, keep=options.keep)
    cache = cache_like(loaded.config, kv_bits=options.kv_bits)
    engine = Engine(
        loaded.make_decoder(loaded.model, cache),
        NoDrafter(),
        loaded.tokenizer,
        name=loaded.name,
        weights=loaded.weights,
        budget=budget or budget_for(loaded, cache),
        chain_rule=options.chain_rule,
    )
    _bound_context(engine, options, say)
    return DrafterContext(
        engine=engine,
        loaded=loaded,
        make_cache=cache_like,
        draft_model=options.draft_model,
        lookahead=options.lookahead,
        exit_threshold=options.exit_threshold,
        limits=options.limits,
        on_progress=on_progress,
        say=say,
    )


def _bound_context(engine: Engine, options: Options, say: Say) -> None:
    """Limit the context to the keys and values that fit: the system would kill a larger process."""
    most, fitting = engine.context_length, context_that_fits(engine.target.model, options.kv_bits)
    if most is None or fitting is None or fitting >= most:
        return
    engine.target.context_length = fitting
    say(
        f"warning: {engine.name} reads {fitting:,} of its {most:,} tokens here: keys and values of "
        "more do not fit in what the GPU recommends to take; --kv-bits or --max-kv-size let it "
        "scroll down"
    )


def stream_text(
    engine: Engine, prompt: str | Sequence[int], params: GenerationParams | None = None
) -> Iterator[str]:
    """Yield the text of a reply piece by piece."""
    for event in engine.generate(prompt, params):
        if isinstance(event, DraftVerified | PlainDecoded | GenerationFinished):
            yield text_of(event)


def _warn(line: str) -> None:
    if line.startswith(WARNING):
        warnings.warn(line.removeprefix(WARNING), stacklevel=2)
