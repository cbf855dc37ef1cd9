"""mlx-lm's wrapper of a tokenizer, with this library's detokenizer and guard of templates."""

import json
import math
from numbers import Integral
from typing import Any

from mlx_lm import tokenizer_utils
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from mlxspec.text.chat_template import refuse_powers, stopped_in_time
from mlxspec.text.stream import TextStream
from mlxspec.text.tokenizer import Tokenizer


class TokenizerWrapper(tokenizer_utils.TokenizerWrapper):
    """The second value of `load`: mlx-lm's own, which does not parse tool calls."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(
            tokenizer.wrapped, lambda _: Detokenizer(tokenizer), tokenizer.eos_token_ids
        )

    def apply_chat_template(self, *args: Any, **kwargs: Any) -> Any:
        """Return the tokens, or the text, of a conversation; `TemplateStoppedError` if too long."""
        template = kwargs.get("chat_template") or self._tokenizer.chat_template
        if isinstance(template, str | dict):
            refuse_powers(template)
        with stopped_in_time():
            return super().apply_chat_template(*args, **kwargs)


class Detokenizer(tokenizer_utils.StreamingDetokenizer):
    """Turns a stream of tokens into text; a special token becomes its name.

    As in mlx-lm, the space at the start of a text is removed.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._most_trimmed = _spaces_left_out(tokenizer.wrapped)
        self.reset()

    def reset(self) -> None:
        self.text, self.offset = "", 0
        self.tokens: list[int] = []
        self._stream = TextStream(self._bytes)
        self._num_trimmed = 0

    def add_token(self, token: int) -> None:
        self.tokens.append(token)
        self._add(self._stream.push(token))

    def finalize(self) -> None:
        """Append the pending text; an incomplete character becomes U+FFFD."""
        self._add(self._stream.finish())

    def _add(self, text: str) -> None:
        if not self.text and text.startswith(" ") and self._num_trimmed < self._most_trimmed:
            self._num_trimmed += 1
            text = text[1:]
        self.text += text

    def _bytes(self, token: int) -> bytes:
        known = self._tokenizer.token_bytes(token)
        if known or not 0 <= token < self._tokenizer.vocab_size:
            return known
        return str(self._tokenizer.wrapped.convert_ids_to_tokens(token) or "").encode()


def wrap(tokenizer: Any) -> Any:
    """Return the second value of `load`, mlx-lm's wrapper, or one for the tokenizer in either."""
    if isinstance(tokenizer, PreTrainedTokenizerFast):
        return TokenizerWrapper(Tokenizer(tokenizer))
    if isinstance(tokenizer, Tokenizer):
        return TokenizerWrapper(tokenizer)
    if isinstance(tokenizer, PreTrainedTokenizerBase) or not hasattr(tokenizer, "detokenizer"):
        raise TypeError(
            f"the tokenizer is a {type(tokenizer).__name__}; give the second value of "
            "mlxspec.compat.load"
        )
    return tokenizer


def tokens_of(prompt: Any, tokenizer: Any = None) -> list[int]:
    """Return the tokens of a prompt: token ids, an array of them, or, with a tokenizer, a text."""
    if isinstance(prompt, str) and tokenizer is not None:
        start = tokenizer.bos_token  # which is added once
        is_bare = start is None or not prompt.startswith(start)
        return list(tokenizer.encode(prompt, add_special_tokens=is_bare))
    tokens = prompt.tolist() if hasattr(prompt, "tolist") else prompt
    # Integral includes NumPy's integers, and bool
    if not isinstance(tokens, list | tuple) or not all(
        isinstance(token, Integral) and not isinstance(token, bool) for token in tokens
    ):
        or_text = "a text, or " if tokenizer is not None else ""
        raise TypeError(
            f"a prompt is {or_text}token ids in a list or in an array of one axis; got "
            f"{type(prompt).__name__}"
        )
    return [int(token) for token in tokens]


def _spaces_left_out(tokenizer: PreTrainedTokenizerFast) -> float:
    """Return the maximum number of spaces to remove at the start of a text, one per token."""
    decoder = json.loads(tokenizer.backend_tokenizer.to_str())["decoder"] or {}
    steps = decoder.get("decoders", [])
    if any(step.get("type") == "Strip" and step.get("start") for step in steps):
        return math.inf
    return 1 if decoder.get("type") == "ByteLevel" else 0
