"""The engine of a model: the one that `load` returned, or one made for a model of mlx-lm.

The engine of a model of mlx-lm is made once and stored on the model, so both have the same
lifetime. Its drafter is "pool", which needs no files and no trials.
"""

from typing import Any

import mlx.nn as nn
from tokenizers import Tokenizer as Backend
from tokenizers import decoders
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from mlxspec import api
from mlxspec.decoder.decoder import Decoder
from mlxspec.device.packed import Quantization
from mlxspec.device.turns import device_turn
from mlxspec.drafters.base import Drafter, fresh_drafter
from mlxspec.drafters.draft_model import DraftModelDrafter
from mlxspec.drafting.registry import HOST_DRAFTERS
from mlxspec.engine.engine import Engine
from mlxspec.errors import VocabularyMismatchError
from mlxspec.kv.cache import Cache
from mlxspec.params import DEFAULT_KEEP, checks

_ENGINE, _CACHES = "engine_of_mlxspec", "caches_of_that_engine"


def engine_of(model: Any, tokenizer: Any = None, name: str = "model") -> Engine:
    """Return the engine of the argument `name`; a model of mlx-lm is adapted at its first use.

    Without a `tokenizer` it takes and returns token ids alone.
    """
    check_model(model, name)
    if isinstance(model, Engine):
        return model
    with device_turn():  # two threads must not adapt one model at the same time
        engine: Engine | None = vars(model).get(_ENGINE)
        knows_texts = engine is not None and engine.tokenizer.vocab_size > 0
        caches = vars(model).get("make_cache")  # one set on the model overrides that of its type
        is_stale = vars(model).get(_CACHES) is not caches
        if engine is None or is_stale or (tokenizer is not None and not knows_texts):
            if tokenizer is None:
                empty = Backend(BPE())
                empty.decoder = decoders.ByteLevel()
                tokenizer = PreTrainedTokenizerFast(tokenizer_object=empty)
            engine = api.wrap(model, tokenizer, drafter="pool")
            # Not an array, so it does not become a parameter of the model.
            vars(model)[_ENGINE] = engine
            vars(model)[_CACHES] = caches
        return engine


def draft_model_drafter(engine: Engine, small: Engine, lookahead: int) -> DraftModelDrafter:
    """Return a drafter of chains with the model of the engine `small`, which is not changed."""
    if not engine.tokenizer.same_as(small.tokenizer):
        raise VocabularyMismatchError(
            f"the draft model {small.name} has another tokenizer than {engine.name}: choose one "
            "of the same family"
        )
    cache, model = engine.target.cache, small.target.model
    own = Cache.for_model(model.config, max_size=cache.max_size, keep=cache.keep)
    return DraftModelDrafter(Decoder(model, own), engine.target.vocab_size, lookahead)


def refuse(name: str, is_given: object, reason: str) -> None:
    """Raise TypeError with the reason if an argument is given that has no equivalent here."""
    if is_given:
        raise TypeError(f"{name} is not supported here: {reason}")


def check_model(model: Any, name: str = "model") -> None:
    """Raise TypeError unless `model` is an engine or a model of mlx-lm."""
    if not isinstance(model, Engine | nn.Module):
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        raise TypeError(
            f"{name} must be an engine or a model of mlx-lm; got {kind}: load it with "
            "mlxspec.compat.load"
        )


def check_max_kv_size(max_kv_size: Any) -> None:
    """Raise ValueError unless a rotating cache can have this size; None means no rotating cache."""
    if max_kv_size is not None:
        least = DEFAULT_KEEP + 1
        checks.whole("max_kv_size", max_kv_size, f"{least} or more", least=least)


def engine_beside(engine: Engine, max_size: int | None, packing: Quantization | None) -> Engine:
    """Return an engine with the same model, a drafter like the engine's, and another cache."""
    model, own = engine.target.model, engine.target.cache
    keep = DEFAULT_KEEP if own.max_size is None else own.keep
    cache = Cache.for_model(model.config, max_size=max_size, keep=keep, quantization=packing)
    target = Decoder(model, cache)
    if max_size is None and engine.context_length is not None:
        target.context_length = engine.context_length  # may be less than the model's
    return Engine(
        target,
        drafter_like(engine.drafter, target),
        engine.tokenizer,
        name=engine.name,
        weights=engine.weights,
        budget=engine.budget.fresh(),
        chain_rule=engine.chain_rule,
        exact=engine.exact,
    )


def drafter_like(drafter: Drafter, target: Decoder) -> Drafter:
    """Return a drafter like this one for another text, or "pool" if it cannot be copied."""
    try:
        return fresh_drafter(drafter, target)
    except ValueError:
        return HOST_DRAFTERS["pool"]()
