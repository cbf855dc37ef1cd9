"""The vocabulary of a model as the library of grammars, llguidance, reads it.

One token is added behind the model's: it stands for "the text may end here". Which tokens of the
model that means is a setting of each reply.
"""

import json
from collections.abc import Sequence
from typing import Any

from mlxspec.errors import UnsupportedOperationError
from mlxspec.tokenizer import Tokenizer

_END = "<|the grammar may end here|>"


def library() -> Any:
    """Return the module llguidance.

    Raises:
        UnsupportedOperationError: It is not installed.
    """
    try:
        import llguidance
    except ImportError as error:
        raise UnsupportedOperationError(
            "a reply under a grammar needs the package llguidance, which is not installed: "
            "pip install 'mlxspec[grammar]'"
        ) from error
    return llguidance


class Vocabulary:
    """All tokens of a tokenizer, and one more for the end.

    Attributes:
        reader: The tokenizer of llguidance.
        end: Id of the token for the end.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Read a tokenizer; this takes some tenths of a second.

        Raises:
            UnsupportedOperationError: llguidance is not installed, or cannot read the tokenizer.
        """
        llguidance = library()
        self.end = tokenizer.vocab_size
        wrapped = getattr(tokenizer, "wrapped", None)
        if wrapped is None:
            source: Any = llguidance.TokenizerWrapper(_Bytes(tokenizer))
        else:
            source = _with_end(wrapped.backend_tokenizer.to_str(), self.end)
        try:
            self.reader = llguidance.LLTokenizer(source, eos_token=[self.end])
        except ValueError as error:
            raise UnsupportedOperationError(
                f"this model's tokenizer serves no grammar: {error}; choose another model"
            ) from error


class _Bytes:
    """A tokenizer without a file, given by the bytes of its tokens."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.eos_token_id = tokenizer.vocab_size
        self.tokens = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]
        self.special_token_ids = [token for token, text in enumerate(self.tokens) if not text]
        self.special_token_ids.append(self.eos_token_id)
        self.tokens.append(b"\xff" + _END.encode())
        self._encode = tokenizer.encode

    def __call__(self, text: str | bytes) -> Sequence[int]:
        whole = text.decode() if isinstance(text, bytes) else text
        return self._encode(whole, add_special_tokens=False)


def _with_end(source: str, end: int) -> str:
    """Return the JSON of a tokenizer with the token for the end, without padding or truncation."""
    described = json.loads(source)
    described["padding"] = described["truncation"] = None
    described["added_tokens"].append(
        {
            "id": end,
            "content": _END,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
    )
    return json.dumps(described)
