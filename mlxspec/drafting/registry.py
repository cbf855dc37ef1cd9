"""Builds a drafter from its name: a word, a file, a folder, a hub id, or a list.

none, suffix, table, pool     need only the text; table and pool start with the table that was
                              trained for the target, else with that of the seed text
medusa, eagle3, exit, model   the drafter that was trained for the target
a path or hub id              the trained head, table or draft model stored there
a, b, ...                     one pool of all of these
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from os.path import expanduser
from pathlib import Path
from typing import Any

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.base import Drafter
from mlxspec.drafters.draft_model import DraftModelDrafter
from mlxspec.drafters.early_exit import EarlyExitDrafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.search.earlier import EarlierTexts
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.drafters.table.drafter import TableDrafter
from mlxspec.drafters.table.file import load_table
from mlxspec.drafters.table.memory import TableMemory
from mlxspec.drafters.table.seed_table import SeedTable, find_seed_table, is_used_with
from mlxspec.drafting.heads import best_way, head_drafters
from mlxspec.drafting.names import TRAINED, parts_of
from mlxspec.engine.engine import Engine
from mlxspec.errors import MlxspecError, Progress, Say, VocabularyMismatchError
from mlxspec.kv.cache import make_cache
from mlxspec.loading import LoadedModel, Room, load_model
from mlxspec.loading.folder import is_model_folder
from mlxspec.loading.heads.file import DrafterFile, drafters_for, fingerprint, read_drafter_file
from mlxspec.loading.heads.load import find_head, load_head
from mlxspec.loading.load import load_draft_model_file
from mlxspec.params import GREEDY, Options, SamplingParams

HOST_DRAFTERS: dict[str, Callable[..., Drafter]] = {
    "none": NoDrafter,
    "suffix": SuffixDrafter,
    "table": TableDrafter,
    "pool": lambda *table, earlier=None, **more: PoolDrafter(
        [SuffixDrafter(earlier=earlier), TableDrafter(*table, **more)]
    ),
}
"""Drafters that need only the text; table and pool accept rows, memory and seed of a table, and
suffix and pool the texts of other sessions."""

_READS_TABLE = ("table", "pool")
_COPIES = ("suffix", "pool")


@dataclass(frozen=True)
class DrafterContext:
    """The target for which drafters are built, and the options of cache and drafters."""

    engine: Engine
    loaded: LoadedModel
    options: Options
    sampling: SamplingParams = GREEDY  # sampling params of the trials of `auto`
    on_progress: Progress | None = None  # called with the progress of a download
    say: Say = lambda line: None
    # The index of the best layer convention of a head, by source: each is tried once.
    conventions: dict[str, int] = field(default_factory=dict)
    earlier: EarlierTexts = field(default_factory=EarlierTexts)  # the texts of other sessions

    @property
    def target(self) -> Decoder:
        return self.engine.target

    @cached_property
    def fingerprint(self) -> str:
        """The target's fingerprint, made only on demand: it is slow, and few drafters need it."""
        return fingerprint(self.loaded.config, self.loaded.tokenizer)

    @cached_property
    def files(self) -> Mapping[str, DrafterFile]:
        """The trained drafters for the target on this disk, by kind."""
        return drafters_for(self.fingerprint)

    @cached_property
    def seed_table(self) -> SeedTable | None:
        """The seed table, unless a trained one replaces it; the first call begins to make it."""
        if not is_used_with(self.files.get("table")):
            return None
        return find_seed_table(self.loaded.tokenizer, self.target.vocab_size, self.say)


def table_memory(
    drafter: str, context: DrafterContext, folder: str | PathLike[str]
) -> TableMemory | None:
    """Return the memory of earlier runs for a drafter's table; None if it has no table."""
    if not set(parts_of(drafter)) & set(_READS_TABLE):
        return None
    path = Path(expanduser(folder)) / f"{context.fingerprint}.safetensors"
    tokenizer = context.loaded.tokenizer.fingerprint
    return TableMemory(path, context.target.vocab_size, tokenizer=tokenizer, say=context.say)


def build_drafter(
    drafter: str, context: DrafterContext, memory: TableMemory | None = None
) -> Drafter:
    """Return the drafter that a word, a path, a hub id or a list names; see `check_drafter`.

    `memory` holds what a table in the drafter learned in earlier runs. Raises `MlxspecError` if
    there is no such drafter, or it cannot serve this target.
    """
    built = [_build(part, context, memory) for part in parts_of(drafter)]
    made = built[0] if len(built) == 1 else PoolDrafter(built)
    made.limit(context.options.limits)
    return made


def _build(part: str, context: DrafterContext, memory: TableMemory | None) -> Drafter:
    more: dict[str, Any] = {"earlier": context.earlier} if part in _COPIES else {}
    if part in _READS_TABLE:
        file = context.files.get("table")
        rows = load_table(file.path, context.target.vocab_size) if file else ()
        return HOST_DRAFTERS[part](rows, memory=memory, seed_table=context.seed_table, **more)
    if part in HOST_DRAFTERS:
        return HOST_DRAFTERS[part](**more)
    if part == "model" and context.options.draft_model is not None:
        return _draft_model(context.options.draft_model, context)
    if part in TRAINED:
        return _from_file(_trained_file(part, context), context)
    place = find_head(part, context.on_progress).path
    file = read_drafter_file(place) if place.is_file() else None
    if file is not None:
        return _from_file(file, context, is_probed=True)
    if place.suffix == ".gguf" if place.is_file() else is_model_folder(place):
        return _draft_model(part, context)
    return _head(part, context, is_probed=True)


def _trained_file(word: str, context: DrafterContext) -> DrafterFile:
    kind = TRAINED[word]
    if kind not in context.files:
        or_name = "; or name a checkpoint with --draft-model" if word == "model" else ""
        raise MlxspecError(
            f"there is no trained drafter of the kind {kind!r} for {context.loaded.name}: "
            f"train one with `mlxspec train {kind}`{or_name}, or choose 'pool', which needs none"
        )
    return context.files[kind]


def _from_file(file: DrafterFile, context: DrafterContext, *, is_probed: bool = False) -> Drafter:
    match file.kind:
        case "table":
            tokenizer = context.loaded.tokenizer.fingerprint
            rows = load_table(file.path, context.target.vocab_size, tokenizer=tokenizer)
            return TableDrafter(rows)
        case "draft-model":
            return _draft_with(load_draft_model_file(file, context.loaded.tokenizer), context)
        case _:
            return _head(str(file.path), context, is_probed=is_probed)


def _draft_model(source: str | PathLike[str], context: DrafterContext) -> Drafter:
    room = Room(beside=context.loaded.model.nbytes)
    small = load_model(source, room=room, on_progress=context.on_progress)
    return _draft_with(small, context)


def _draft_with(small: LoadedModel, context: DrafterContext) -> Drafter:
    """Return the drafter of a model with the target's tokenizer; their logits may be padded."""
    target, options = context.loaded, context.options
    if not target.tokenizer.same_as(small.tokenizer):
        raise VocabularyMismatchError(
            f"{small.name} cannot draft for {target.name}: they have different tokenizers "
            f"({small.tokenizer.vocab_size} and {target.tokenizer.vocab_size} tokens). Choose a "
            "draft model of the same family, or the drafter 'pool', which needs none"
        )
    decoder = Decoder(small.model, make_cache(small.config, replace(options, kv_bits=None)))
    return DraftModelDrafter(decoder, context.target.vocab_size, options.lookahead)


def _head(source: str, context: DrafterContext, *, is_probed: bool) -> Drafter:
    """Return the drafter of a head; with `is_probed`, a trial on the target comes first."""
    head = load_head(source, context.loaded.config, on_progress=context.on_progress)
    drafters, ways = head_drafters(head, context.target), context.conventions
    if is_probed and source not in ways:
        ways[source] = best_way(source, head, drafters, context.engine, context.say)
    drafter, threshold = drafters[ways.get(source, 0)], context.options.exit_threshold
    if isinstance(drafter, EarlyExitDrafter) and threshold is not None:
        drafter.threshold = threshold
    return drafter
