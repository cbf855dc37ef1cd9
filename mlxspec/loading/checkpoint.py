"""What every kind of source is read into: a config, tensors and a tokenizer as Hugging Face's."""

from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
from transformers import PreTrainedTokenizerFast

from mlxspec.models.weights import Quantization


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
