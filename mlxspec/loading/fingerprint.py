"""Which model a trained drafter belongs to, however that model is packed.

A drafter trained on one copy of a model serves every other copy: a GGUF file of 4 bits, a folder
of bfloat16. They share their sizes and their tokens, so these name the target. Models that differ
in their weights alone look the same here; only measuring acceptance tells those apart.
"""

import hashlib
import json

from mlxspec.models import ModelConfig
from mlxspec.tokenizer import Tokenizer

_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "attention_bias",
)
_DIGITS = 16


def fingerprint(config: ModelConfig, tokenizer: Tokenizer) -> str:
    """Return a short name of a target: equal for every packing of one model.

    The family's name is left out, because a GGUF file calls Mistral a Llama.
    """
    sizes = [getattr(config, name) for name in _SIZES]
    text = json.dumps([sizes, _plain_tokens(tokenizer)])
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _plain_tokens(tokenizer: Tokenizer) -> list[tuple[int, str]]:
    """Return the tokens of text in order; formats disagree on how they mark all others."""
    added = tokenizer.wrapped.added_tokens_decoder
    return sorted(
        (token, text)
        for text, token in tokenizer.wrapped.get_vocab().items()
        if token not in added and not (text.startswith("<") and text.endswith(">"))
    )
