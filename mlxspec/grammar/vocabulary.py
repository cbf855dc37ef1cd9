"""The vocabulary of a model in the form that llguidance, the library of grammars, reads.

One token is added after the model's: it means "the text may end here". Which tokens of the model
have this meaning is a setting of each reply.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from mlxspec.errors import UnsupportedOperationError
from mlxspec.tokenizer import Tokenizer

_END = "<|the grammar may end here|>"
_SPECIAL = b"\xff"  # starts a token that is not text


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

    `reader` is the tokenizer of llguidance; `end` is the id of the token for the end.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Read a tokenizer; this takes some tenths of a second.

        Raises:
            UnsupportedOperationError: llguidance is not installed, or cannot read the tokenizer.
        """
        llguidance = library()
        self.end = tokenizer.vocab_size
        try:
            source = llguidance.TokenizerWrapper(_Bytes(tokenizer))
            self.reader = llguidance.LLTokenizer(source, eos_token=[self.end])
        except ValueError as error:
            raise UnsupportedOperationError(
                f"this model's tokenizer serves no grammar: {error}; choose another model"
            ) from error


class _Bytes:
    """A tokenizer in the form that llguidance accepts, by the bytes of its tokens.

    From a tokenizer.json it would read the letters of added tokens as codes of bytes.
    """

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.eos_token_id = tokenizer.vocab_size
        texts = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]
        self.special_token_ids = [token for token, text in enumerate(texts) if not text]
        self.special_token_ids.append(self.eos_token_id)
        for name, token in tokenizer.special.items():
            texts[token] = _SPECIAL + name.encode()  # so that a grammar can name it
        self.tokens = [*texts, _SPECIAL + _END.encode()]
        self._encode = partial(tokenizer.encode, add_special_tokens=False)
        adds_space = tokenizer.decode(self._encode("a")).startswith(" ")
        self._begin = "\x02" if adds_space else ""  # no token joins it with the text after it
        self._num_begin = len(self._encode(self._begin))

    def __call__(self, text: str | bytes) -> Sequence[int]:
        whole = text.decode() if isinstance(text, bytes) else text
        return self._encode(self._begin + whole)[self._num_begin :]
