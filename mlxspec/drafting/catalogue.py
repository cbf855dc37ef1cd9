"""Lists the models on this disk, whether they fit in memory, and the drafters for each.

It reads only configs, headers and tokenizers, and loads no weights. The speed of a drafter is known
only if the choice `auto` has measured it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from mlxspec.adapted.config import UNLIMITED
from mlxspec.device import backend
from mlxspec.device.speed import is_busy, measure_bandwidth
from mlxspec.drafting.auto import stored_verdict, verdict_key
from mlxspec.drafting.entries import DrafterEntry, ModelEntry
from mlxspec.drafting.measured import store
from mlxspec.drafting.names import HOST, MEANINGS, TRAINED
from mlxspec.drafting.verdict import DrafterVerdict
from mlxspec.errors import UnsupportedModelError
from mlxspec.kv.cache import cache_words
from mlxspec.loading.fetch import default_model
from mlxspec.loading.fetch.models import LocalModel, describe_model, list_local_models
from mlxspec.loading.fetch.offers import Offer, offers, recommended
from mlxspec.loading.fetch.sources import find_local, local_places
from mlxspec.loading.folder import is_model_folder, read_config
from mlxspec.loading.heads.file import DrafterFile, drafters_for, fingerprint
from mlxspec.loading.profile import ModelProfile, tokenizer_of
from mlxspec.loading.room import counted_tokens
from mlxspec.models import drafts_in_words
from mlxspec.models.weights import words_of_loaded
from mlxspec.params import DEFAULT_MODEL, Options
from mlxspec.text.tokenizer import Tokenizer

_NOT_EXAMINED = "drafts not examined yet"
_NO_CHAT = "it has no chat template, so it cannot chat: choose its instruct version"


def list_models() -> list[ModelEntry]:
    """Return the models on this disk; the default model comes first, downloaded or not."""
    entries = [model_entry(model) for model in list_local_models()]
    if not default_model.has_default_model():
        entries = [entry for entry in entries if entry.source != "default"]
        entries.insert(0, _missing_default())
    return entries


def list_offers() -> list[ModelEntry]:
    """Return the recommended models that are not on this disk, from small to large."""
    here = {place.name for place in local_places()}
    wanted = [offer for offer in offers() if offer.repository not in here]
    bandwidth = _bandwidth() if wanted and not is_busy() else 0.0
    # A speed that would be told as 0 is not told.
    speeds = [round(bandwidth / offer.read_gb, 1) or None for offer in wanted]
    best = recommended()
    return [
        replace(_entry(offer), expected_tps=speed, is_recommended=offer == best)
        for offer, speed in zip(wanted, speeds, strict=True)
    ]


def recommended_model() -> ModelEntry | None:
    """Return the model to fetch first on this machine, which may be here already."""
    offer = recommended()
    if offer is None:
        return None
    here = find_model(offer.repository)
    if here is not None and not here.problem:
        return here
    return replace(_entry(offer), is_recommended=True)


def _entry(offer: Offer) -> ModelEntry:
    return ModelEntry(
        offer.repository,
        offer.repository,
        offer.download_gb,
        is_here=False,
        memory_gb=offer.memory_gb,
        licence=offer.licence,
    )


@cache
def _bandwidth() -> float:
    """Return GB/s of this machine, measured once per process: another day it may be idle."""
    return measure_bandwidth()


def find_model(source: str) -> ModelEntry | None:
    """Return a model on this disk or the default one, by the value of `--model`; else None."""
    place = find_local(source)
    if place is not None:
        return model_entry(describe_model(place.path, source, place.name))
    return _missing_default() if source == "default" else None


def _missing_default() -> ModelEntry:
    size_gb = default_model.DOWNLOAD_BYTES / backend.GB
    return ModelEntry("default", DEFAULT_MODEL, size_gb, is_here=False)


def model_entry(model: LocalModel) -> ModelEntry:
    """Return the entry of a model on this disk."""
    profile = model.profile
    if profile is None:
        return ModelEntry(model.source, model.name, model.size_gb, problem=model.problem)
    config = profile.config
    num_tokens = counted_tokens(config)
    drafts = drafts_in_words("tree") if profile.is_exact else _NOT_EXAMINED
    if model.admission is not None:
        drafts = model.admission.words
    context = config.max_position_embeddings
    return ModelEntry(
        model.source,
        model.name,
        model.size_gb,
        packing=profile.packing,
        architecture=config.model_type,
        context_length=context if context < UNLIMITED else 0,
        memory_gb=profile.memory_bytes(num_tokens) / backend.GB,
        memory_tokens=num_tokens,
        problem="" if profile.has_chat_template else _NO_CHAT,
        drafts=drafts,
        is_bound=not profile.is_exact,
    )


class DrafterFinder:
    """Finds the drafters of a target; stores comparisons of tokenizers, which are slow."""

    def __init__(self) -> None:
        self._mismatches: dict[tuple[Path, Path], str] = {}

    def find(self, source: str, options: Options | None = None) -> list[DrafterEntry]:
        """Return the drafters for a model, best first; those that cannot draft have a reason.

        `source` is the value of `--model`. For a model that is not on this disk, only the drafters
        that need no training are listed. Measured speeds are those with the cache and limits of
        `options`; None for a full cache.
        """
        target = _described(source)
        if target is None:
            return list(_words(None, None))
        path, profile = target
        try:
            tokenizer = tokenizer_of(path, profile.config)
        except UnsupportedModelError as error:
            return [DrafterEntry("auto", "auto", problem=str(error))]
        key, files = _verdict_key(profile, tokenizer, options)
        others = [model for model in list_local_models() if model.path.resolve() != path.resolve()]
        entries = [
            *_words(files, stored_verdict(key)),
            *self._models(others, path, profile, tokenizer),
            *_heads(others, profile.config.hidden_size),
        ]
        # `auto` first, then by measured speed, and drafters with a problem last
        return sorted(
            entries,
            key=lambda one: (one.drafter != "auto", bool(one.problem), -(one.tokens_per_s or 0.0)),
        )

    def forget_verdict(self, source: str, options: Options | None = None) -> None:
        """Delete the verdict for a model, so that `auto` measures at the next load.

        The arguments are as in `find`; a model that is not on this disk has no verdict.
        """
        target = _described(source)
        if target is not None:
            path, profile = target
            key, _ = _verdict_key(profile, tokenizer_of(path, profile.config), options)
            store(key, {})

    def _models(
        self, others: Sequence[LocalModel], path: Path, target: ModelProfile, tokenizer: Tokenizer
    ) -> Iterator[DrafterEntry]:
        for model in others:
            if model.profile is None:
                continue
            problem = "it is no smaller than the target"
            if model.profile.num_weights < target.num_weights:
                pair = (model.path, path)
                if pair not in self._mismatches:
                    self._mismatches[pair] = _mismatch(model.path, model.profile, tokenizer)
                problem = self._mismatches[pair]
            # "default" is a word only of `--model`: `--drafter` needs the path
            drafter = str(model.path) if model.source == "default" else model.source
            yield DrafterEntry(drafter, model.name, "a model that is here", problem)


def _described(source: str) -> tuple[Path, ModelProfile] | None:
    place = find_local(source)
    profile = place and describe_model(place.path, source, place.name).profile
    return (place.path, profile) if place and profile else None


def _verdict_key(
    profile: ModelProfile, tokenizer: Tokenizer, options: Options | None
) -> tuple[str, Mapping[str, DrafterFile]]:
    """Return the key of the verdict for a model, and the trained drafters for it on this disk."""
    asked, name = options or Options(), fingerprint(profile.config, tokenizer)
    files, weights = drafters_for(name), words_of_loaded(profile.weights)
    cache = cache_words(asked.max_kv_size, asked.keep, asked.kv_bits)
    return verdict_key(name, weights, cache, asked.limits, files), files


def _heads(models: Sequence[LocalModel], width: int) -> Iterator[DrafterEntry]:
    """Yield the downloaded heads in the hub's cache folder; only loading shows if they fit."""
    for model in models:
        try:
            if model.profile is not None or model.path.is_file() or is_model_folder(model.path):
                continue
            own = read_config(model.path).get("hidden_size", width)
        except UnsupportedModelError:
            continue
        problem = "" if own == width else f"made for a width of {own}, the target's is {width}"
        yield DrafterEntry(model.source, model.name, "a head that is here", problem)


def _mismatch(path: Path, draft: ModelProfile, target: Tokenizer) -> str:
    try:
        own = tokenizer_of(path, draft.config)
    except UnsupportedModelError as error:
        return str(error)
    if own.same_as(target):
        return ""
    if own.vocab_size == target.vocab_size:
        return "it has another tokenizer than the target"
    return f"vocabulary of {own.vocab_size:,}, the target's has {target.vocab_size:,}"


def _words(
    files: Mapping[str, DrafterFile] | None, verdict: DrafterVerdict | None
) -> Iterator[DrafterEntry]:
    """Yield the drafters that words name; those that need training only if `files` are given."""
    speeds = verdict.speeds if verdict else {}
    best, meaning = "", MEANINGS["auto"]
    if verdict and verdict.is_settled:
        best, meaning = verdict.drafter, f"the fastest here: {verdict.drafter}"
    elif verdict:
        meaning = f"{verdict.drafter} for now, and measured again: {verdict.why}"
    yield DrafterEntry("auto", "auto", meaning)
    problems = {word: "" for word in MEANINGS if word in HOST}
    if files is not None:
        missing = "none is trained for this model: mlxspec train {}"
        trained = {w: "" if k in files else missing.format(k) for w, k in TRAINED.items()}
        problems = trained | problems
    for word, problem in problems.items():
        meaning = MEANINGS[word]
        if word in ("table", "pool") and files is not None and "table" not in files:
            meaning += ", which begins with the seed text"
        yield DrafterEntry(word, word, meaning, problem, speeds.get(word), word == best)
    for name in speeds.keys() - {*TRAINED, *HOST}:
        yield DrafterEntry(name, name, "one pool of these", "", speeds[name], name == best)
