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
    """The content of a model's file or folder."""

    config: dict[str, Any] = field(repr=False)  # the content of `config.json`
    # By Hugging Face's name; a quantised one is `weight`, `scales` and usually `biases`.
    tensors: dict[str, mx.array] = field(repr=False)
    tokenizer: PreTrainedTokenizerFast = field(repr=False)
    quantization: Quantization | None = None  # None if no tensor is quantised


@dataclass(frozen=True)
class Changes:
    """Changes to a stored model, and which stored version is loaded."""

    config: Mapping[str, Any] = field(default_factory=dict)  # replaces entries of config.json
    tokenizer: Mapping[str, Any] = field(default_factory=dict)  # and of tokenizer_config.json
    revision: str | None = None  # branch, tag or commit; None for the cached or newest one

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
    """How one process loads a model that it shares with others."""

    size: int = 1  # number of processes
    # Removes the parts that other processes keep, while the weights are lazy; returns how the model
    # is shared, for display.
    cut: Callable[[nn.Module], str] = lambda module: ""
    # Returns the value of the first process in all of them; each calls it in the same order.
    agree: Callable[[Any], Any] = lambda value: value


ALONE = Sharing()
