"""Tiny random models and a toy tokenizer: enough of the real thing to test the engine around it."""

import mlx.core as mx

from mlxspec import testing
from mlxspec.decoder.decoder import Decoder
from mlxspec.device.packed import Quantization
from mlxspec.drafters.none import NoDrafter
from mlxspec.engine.engine import Engine
from mlxspec.kv.cache import Cache
from mlxspec.models import Model
from mlxspec.trace.events import DrafterFailed


def tiny_model(family: str = "llama", *, vocab_size: int = 24, seed: int = 5, **config) -> Model:
    """The tiny target of `mlxspec.testing`, with more tokens."""
    return testing.tiny_model(family, vocab_size=vocab_size, seed=seed, **config)


def near_model(family: str = "llama") -> Model:
    """A model that agrees with the tiny target now and then: its head with noise."""
    model = tiny_model(family)
    noise = mx.random.normal(model.lm_head.weight.shape, key=mx.random.key(99)) * 0.3
    model.lm_head.weight = model.lm_head.weight + noise
    return model


def make_cache(model: Model, kind: str) -> Cache:
    """A cache of the kind "full", "rotating", "int8", "int4" or "rotating-int8"."""
    packing = Quantization.for_head_dim(4 if "int4" in kind else 8, 32) if "int" in kind else None
    ring = {"max_size": 12, "keep": 2} if "rotating" in kind else {}
    return Cache.for_model(model.config, quantization=packing, **ring)


class ToyTokenizer(testing.LetterTokenizer):
    """One token per letter: 0 is "a", 1 is "b", ...; no template, no special tokens."""

    def __init__(self, vocab_size: int = 24):
        super().__init__(vocab_size)


def make_engine(
    model: Model, drafter, kind: str = "full", *, make_drafter=None, tokenizer=None, budget=None
) -> Engine:
    """An engine on a tiny target; `make_drafter` is given that, and stands for `drafter`."""
    decoder = Decoder(model, make_cache(model, kind))
    own = make_drafter(decoder) if make_drafter else drafter or NoDrafter()
    tokenizer = tokenizer or ToyTokenizer(model.config.vocab_size)
    return Engine(decoder, own, tokenizer, name="tiny", budget=budget)


def text_logits(model: Model, tokens: list[int]) -> mx.array:
    """(len(tokens), V) logits after each token of a text, read in one forward."""
    decoder = Decoder(model)
    decoder.observe(tokens)
    return decoder.logits(decoder.hidden_states([])[0])


def tokens_of(events) -> list[int]:
    """The token ids that a sequence of events emits."""
    return [token.token for event in events for token in getattr(event, "emit", ())]


def emitted(events) -> list[int]:
    """The same; fails if the drafter failed."""
    events = list(events)
    assert [event for event in events if isinstance(event, DrafterFailed)] == []
    return tokens_of(events)
