"""What every kind of source is read into: a config, tensors and a tokenizer as Hugging Face's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
from transformers import PreTrainedTokenizerFast

Quantization = Mapping[str, Any]
"""`group_size`, `bits` and `mode` of an MLX checkpoint, and the same by module path where a
module differs; False there marks a module that is not quantised."""


@dataclass(frozen=True)
class Checkpoint:
    """What a file or folder holds.

    Attributes:
        config: The content of `config.json`.
        tensors: Arrays by their Hugging Face name; quantised ones are `weight`, `scales` and
            mostly `biases`.
        tokenizer: The tokenizer with its chat template.
        quantization: How quantised tensors are to be read, or None where there are none.
    """

    config: dict[str, Any] = field(repr=False)
    tensors: dict[str, mx.array] = field(repr=False)
    tokenizer: PreTrainedTokenizerFast = field(repr=False)
    quantization: Quantization | None = None
