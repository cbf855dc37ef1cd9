"""A checkpoint in memory, from any kind of source, and how a caller wants it to be loaded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from transformers import PreTrainedTokenizerFast

from mlxspec.errors import UnsupportedOperationError
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


@dataclass(frozen=True)
class Changes:
    """Changes to a stored model, and which stored version is loaded.

    Attributes:
        config: Entries that replace those of config.json.
        tokenizer: Arguments of the tokenizer of transformers, such as `eos_token`; they replace
            those of tokenizer_config.json.
        revision: Branch, tag or commit of a hub model; None for the cached or newest one.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: Mapping[str, Any] = field(default_factory=dict)
    revision: str | None = None

    def check_source(self, path: Path) -> None:
        """Raise UnsupportedOperationError if the tokenizer of such a file cannot be changed."""
        if self.tokenizer and not path.is_dir():
            raise UnsupportedOperationError(
                f"tokenizer_config is not supported for {path.name}: a GGUF file describes its "
                "tokenizer as a whole; give a model folder or a hub id"
            )


UNCHANGED = Changes()


@dataclass(frozen=True)
class Sharing:
    """How one process loads a model that it shares with others.

    Attributes:
        size: Number of processes.
        cut: Removes the parts that other processes keep, while the weights are lazy; returns how
            the model is shared, for display.
        agree: Returns the value of the first process in all of them; every process calls it in the
            same order.
    """

    size: int = 1
    cut: Callable[[nn.Module], str] = lambda module: ""
    agree: Callable[[Any], Any] = lambda value: value


ALONE = Sharing()
