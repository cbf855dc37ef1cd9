"""A target that needs no download: a random model of two layers with a small vocabulary."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, cast

import mlx.core as mx
import mlx.utils

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.base import Drafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.engine.engine import Engine
from mlxspec.kv.cache import Cache
from mlxspec.models import Model, ModelConfig, build_model
from mlxspec.text.tokenizer import Tokenizer

_RING_ROWS, _NUM_SINKS = 12, 2  # of a rotating cache: rows, and attention sinks


class LetterTokenizer:
    """One token per letter: 0 is "a", 1 is "b", and so on; no template, no special tokens."""

    eos_token_ids: tuple[int, ...] = ()
    has_chat_template = False
    reasoning = None
    special: ClassVar[Mapping[str, int]] = {}

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return one token per letter, counted from "a"."""
        return [ord(letter) - ord("a") for letter in text]

    def decode(self, tokens: Iterable[int]) -> str:
        return "".join(self.token_bytes(token).decode() for token in tokens)

    def token_bytes(self, token: int) -> bytes:
        return chr(ord("a") + token).encode()


def tiny_model(
    family: str = "llama", *, vocab_size: int = 8, seed: int = 5, **config: Any
) -> Model:
    """Return a float32 model whose next token depends strongly on the previous tokens.

    `family` is its `model_type`: "llama" or "qwen2". None of its tokens ends a reply. The same
    seed gives the same model. `config` has other values of its config.json.
    """
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
    parameters: Any = mlx.utils.tree_flatten(model.parameters())
    for name, array in parameters:
        key, sub = mx.random.split(key)
        noise = mx.random.normal(array.shape, key=sub)
        weights.append((name, 1 + 0.1 * noise if "norm" in name else 0.35 * noise))
    model.load_weights(weights)
    mx.eval(model.parameters())
    return model


def tiny_engine(
    drafter: Drafter | None = None,
    *,
    make_drafter: Callable[[Decoder], Drafter] | None = None,
    vocab_size: int = 8,
    seed: int = 5,
    rotates: bool = False,
) -> Engine:
    """Return an engine with a tiny target; the same arguments give the same target.

    `make_drafter` returns the drafter, given the target; it replaces `drafter`. `vocab_size` is 4
    or more: three siblings and one more token. A cache that rotates has 12 rows.
    """
    if vocab_size < 4:
        raise ValueError(f"a tiny target has 4 tokens or more; got a vocab_size of {vocab_size}")
    model = tiny_model(vocab_size=vocab_size, seed=seed)
    layers = model.config.num_hidden_layers
    cache = Cache(layers, max_size=_RING_ROWS, keep=_NUM_SINKS) if rotates else Cache(layers)
    tokenizer = cast(Tokenizer, LetterTokenizer(vocab_size))
    target = Decoder(model, cache)
    own = make_drafter(target) if make_drafter else drafter or NoDrafter()
    return Engine(target, own, tokenizer, name="tiny")
