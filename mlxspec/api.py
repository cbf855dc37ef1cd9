"""The Python interface: `load` an engine, `stream_text` from it.

import mlxspec

engine = mlxspec.load()
for text in mlxspec.stream_text(engine, "The capital of France is"):
    print(text, end="", flush=True)

Any thread may load, and several threads may use an engine at once: they take turns, a round at a
time. `with mlxspec.load() as engine:` frees the memory at the end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from os import PathLike
from typing import Any, Unpack

import mlx.nn as nn

from mlxspec.device import backend
from mlxspec.drafting.engines import Prepared, prepare_loaded
from mlxspec.drafting.names import check_drafter
from mlxspec.engine.engine import Engine
from mlxspec.errors import Progress, Say, UnsupportedOperationError, warn
from mlxspec.loading import (
    UNCHANGED,
    Changes,
    LoadedModel,
    Room,
    adapted,
    load_model,
    wrapped_tokenizer,
)
from mlxspec.params import GenerationParams, Options, OptionsDict, checks
from mlxspec.trace.events import DraftVerified, GenerationFinished, PlainDecoded, text_of


def load(
    source: str | PathLike[str] | None = None,
    options: Options | None = None,
    *,
    group: Any = None,
    changes: Changes = UNCHANGED,
    on_progress: Progress | None = None,
    say: Say | None = None,
    **settings: Unpack[OptionsDict],
) -> Engine:
    """Load a target and its drafter.

    Args:
        source: A folder, a GGUF file or a hub id; None for the default model, which is downloaded
            once.
        options: How to load it; None for the defaults.
        group: The group of a script that `mlx.launch` has started on all ranks. On rank 0 this
            returns an engine; on the others it computes for rank 0, and ends the process with it.
        changes: Changes of the model's config and tokenizer, and its revision on the hub.
        on_progress: Called with the downloaded bytes and all bytes.
        say: Called with one line for the user; None reports only problems, as Python warnings.
        settings: Fields of `Options`, which come before `options`: `load(drafter="pool")`.

    Raises:
        MlxspecError: `source` or `drafter` was not found, or cannot run.
        TypeError: There is no such setting.
        ValueError: A setting is of the wrong type or out of range, or the drafter is not known.
    """
    chosen = _options(options, settings)
    return prepare(
        source, chosen, group=group, changes=changes, on_progress=on_progress, say=say
    ).engine


def wrap(
    model: Any,
    tokenizer: Any,
    options: Options | None = None,
    *,
    name: str = "",
    say: Say | None = None,
    **settings: Unpack[OptionsDict],
) -> Engine:
    """Return an engine for the model and tokenizer that `mlx_lm.load` returned.

        model, tokenizer = mlx_lm.load("mlx-community/Qwen3-4B-4bit")
        engine = mlxspec.wrap(model, tokenizer)

    The model's weights do not change, and mlx-lm can still use it. At its first use it is compared
    with mlx-lm's plain decoding, once per machine.

    Args:
        model: A model of mlx-lm.
        tokenizer: Its tokenizer: mlx-lm's wrapper, or a fast tokenizer of transformers.
        options: As in `load`, without what chooses how a model is loaded.
        name: Name for messages; "" for the model's type.
        say: As in `load`.
        settings: As in `load`.

    Raises:
        UnsupportedModelError: The model cannot be a target.
        TypeError: There is no such setting.
        ValueError: A setting is of the wrong type, out of range, or only for `load`.
    """
    chosen = _options(options, settings)
    for word in ("adapter", "dtype", "hosts", "port"):
        if getattr(chosen, word) != getattr(Options(), word):
            raise ValueError(
                f"{word} is chosen when a model is loaded: pass it to load, not to wrap"
            )
    check_drafter(chosen.asked, has_draft_model=chosen.draft_model is not None)
    backend.check()
    loaded = adapted(
        checks.instance("model", model, nn.Module),
        wrapped_tokenizer(tokenizer),
        name=name or getattr(model, "model_type", type(model).__name__),
        say=say or warn,
    )
    return prepare_loaded(loaded, chosen, say=say).engine


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
    options = _options(options)
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


def _options(given: Options | None, settings: OptionsDict | None = None) -> Options:
    options = checks.instance("options", Options() if given is None else given, Options)
    known = [field.name for field in fields(Options)]
    for word in settings or ():
        if word not in known:
            raise TypeError(f"there is no setting {word!r}; choose from {', '.join(known)}")
    return replace(options, **(settings or {}))


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
            say=say or warn,
        )
    # Imported here: few calls need these modules and mlx.launch.
    from mlxspec.distributed import follower, ranks

    if changes != UNCHANGED:
        raise UnsupportedOperationError(
            "changes of a model's config, tokenizer or revision are for one machine: store the "
            "changed model, and load that"
        )
    if group is not None and group.rank() != 0:
        follower.follow(group, source)
    found = ranks.start(str(options.hosts)) if group is None else ranks.joined(group)
    return found.load(source, options, on_progress=on_progress, say=say or warn)


def stream_text(
    engine: Engine, prompt: str | Sequence[int], params: GenerationParams | None = None
) -> Iterator[str]:
    """Yield the text of a reply piece by piece."""
    for event in engine.generate(prompt, params):
        if isinstance(event, DraftVerified | PlainDecoded | GenerationFinished):
            yield text_of(event)
