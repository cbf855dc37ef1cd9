"""Tiny random models and a toy tokenizer: enough of the real thing to test the engine around it."""

import mlx.core as mx
import mlx.utils

from mlxspec.cache import Cache
from mlxspec.decoder import Decoder
from mlxspec.drafters.none import NoDrafter
from mlxspec.engine import Engine
from mlxspec.events import DrafterFailed
from mlxspec.models import Model, ModelConfig, build_model
from mlxspec.rows import Quantization


def tiny_model(family: str = "llama", *, vocab_size: int = 24, seed: int = 5, **config) -> Model:
    """A two-layer model in float32 whose next token depends strongly on what stands before."""
    settings = {
        "model_type": family,
        "vocab_size": vocab_size,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "eos_token_id": None,
        **config,
    }
    model = build_model(ModelConfig.from_dict(settings))
    key = mx.random.key(seed)
    weights = []
    for name, array in mlx.utils.tree_flatten(model.parameters()):
        key, sub = mx.random.split(key)
        scale = 0.35 if "norm" not in name else 0.1
        noise = mx.random.normal(array.shape, key=sub) * scale
        weights.append((name, noise + 1 if "norm" in name else noise))
    model.load_weights(weights)
    mx.eval(model.parameters())
    return model


def make_cache(model: Model, kind: str) -> Cache:
    """A cache of the kind "full", "rotating", "int8", "int4" or "rotating-int8"."""
    packing = Quantization.for_head_dim(4 if "int4" in kind else 8, 32) if "int" in kind else None
    ring = {"max_size": 12, "keep": 2} if "rotating" in kind else {}
    return Cache(model.config.num_hidden_layers, quantization=packing, **ring)


class ToyTokenizer:
    """One token per letter: 0 is "a", 1 is "b", ...; no template, no special tokens."""

    eos_token_ids: tuple[int, ...] = ()
    has_chat_template = False

    def __init__(self, vocab_size: int = 24):
        self.vocab_size = vocab_size

    def encode(self, text: str) -> list[int]:
        return [ord(letter) - ord("a") for letter in text]

    def token_bytes(self, token: int) -> bytes:
        return chr(ord("a") + token).encode()


def make_engine(model: Model, drafter, kind: str = "full") -> Engine:
    decoder = Decoder(model, make_cache(model, kind))
    drafter = drafter or NoDrafter()
    return Engine(decoder, drafter, ToyTokenizer(model.config.vocab_size), name="tiny")


def emitted(events) -> list[int]:
    """The token ids that a sequence of events emits, unless the drafter broke down on the way."""
    events = list(events)
    assert [event for event in events if isinstance(event, DrafterFailed)] == []
    return [token.token for event in events for token in getattr(event, "emit", ())]
