"""A checkpoint in memory, from any kind of source: config, tensors and tokenizer."""

from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
from transformers import PreTrainedTokenizerFast

from mlxspec.models.weights import Quantization


@dataclass(frozen=True)
class Checkpoint:
    """The content of a model's file or folder.

    Attributes:
        config: The content of `config.json`.
        tensors: Arrays by their Hugging Face name; a quantised one is `weight`, `scales` and
            usually `biases`.
        quantization: The format of the quantised tensors; None if no tensor is quantised.
    """

    config: dict[str, Any] = field(repr=False)
    tensors: dict[str, mx.array] = field(repr=False)
    tokenizer: PreTrainedTokenizerFast = field(repr=False)
    quantization: Quantization | None = None
