"""A fingerprint of the target of a trained drafter; it is the same for every quantisation.

A drafter that was trained on one copy of a model works with every other copy, such as a GGUF file
of 4 bits or a folder in bfloat16. All copies have the same sizes and tokens, so the fingerprint
consists of these. Models that differ only in their weights have the same fingerprint; only measured
acceptance can tell them apart.
"""

import hashlib
import json

from mlxspec.models import TargetConfig
from mlxspec.text.tokenizer import Tokenizer

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


def fingerprint(config: TargetConfig, tokenizer: Tokenizer) -> str:
    """Return the fingerprint of a target; it is the same for every quantisation of one model.

    It does not include the name of the family, because a GGUF file calls Mistral a Llama.
    """
    sizes = [getattr(config, name) for name in _SIZES]
    text = json.dumps([sizes, _plain_tokens(tokenizer)])
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _plain_tokens(tokenizer: Tokenizer) -> list[tuple[int, str]]:
    """Return the tokens of plain text in order; formats mark the other tokens in different ways."""
    added = tokenizer.wrapped.added_tokens_decoder
    return sorted(
        (token, text)
        for text, token in tokenizer.wrapped.get_vocab().items()
        if token not in added and not (text.startswith("<") and text.endswith(">"))
    )
