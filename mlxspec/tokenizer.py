"""The tokenizer, under the path from which scripts import it."""

from mlxspec.text.tokenizer import Tokenizer

__all__ = ["Tokenizer"]
