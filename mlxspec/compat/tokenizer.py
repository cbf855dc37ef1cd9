"""A tokenizer with mlx-lm's names, on top of the tokenizer of transformers."""

import json
import math
from collections.abc import Iterable
from numbers import Integral
from typing import Any

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from mlxspec.text.stream import TextStream
from mlxspec.text.template_guard import refuse_powers, stopped_in_time
from mlxspec.text.tokenizer import Tokenizer

_THINKING = (("<think>", "</think>"), ("<longcat_think>", "</longcat_think>"))
_TOOLS = "tool calls are not parsed here; use the tokenizer of mlx_lm.tokenizer_utils.load for that"


class TokenizerWrapper:
    """The second value of `load`: mlx-lm's additions to the tokenizer of transformers.

    Attributes that are not defined here are those of the tokenizer of transformers.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._spelling = tokenizer
        self._tokenizer = tokenizer.wrapped
        self._eos_token_ids = set(tokenizer.eos_token_ids)
        vocabulary = tokenizer.wrapped.get_vocab()
        pairs = (pair for pair in _THINKING if vocabulary.keys() >= {*pair})
        self._thinking: tuple[str | None, str | None] = next(pairs, (None, None))

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any:
        """Return the tokens, or the text, of a conversation; arguments as in transformers.

        Raises:
            TemplateStoppedError: The template runs too long, or computes powers.
        """
        template = kwargs.get("chat_template") or self._tokenizer.chat_template
        if isinstance(template, str | dict):
            refuse_powers(template)
        kwargs = {"enable_thinking": self.has_thinking, **kwargs, "return_dict": False}
        with stopped_in_time():
            return self._tokenizer.apply_chat_template(conversation, **kwargs)

    @property
    def has_chat_template(self) -> bool:
        """Whether messages can be turned into a prompt."""
        return self._tokenizer.chat_template is not None

    @property
    def detokenizer(self) -> "Detokenizer":
        """A new `Detokenizer`."""
        return Detokenizer(self._spelling)

    # ---- tokens that end a reply -----------------------------------------------------------

    @property
    def eos_token_ids(self) -> set[int]:
        """Tokens that end a reply."""
        return self._eos_token_ids

    @eos_token_ids.setter
    def eos_token_ids(self, tokens: Iterable[int] | None) -> None:
        self._eos_token_ids = set(tokens or ())

    def add_eos_token(self, token: str) -> None:
        """End replies at this token too, given by its text or its id.

        Raises:
            ValueError: The vocabulary has no such token.
        """
        known = self._tokenizer.get_vocab()
        number = int(token) if str(token).isdecimal() else known.get(token)
        if number is None:
            raise ValueError(f"{token!r} is not a token of this tokenizer: give its text or its id")
        self._eos_token_ids.add(number)

    # ---- thinking --------------------------------------------------------------------------

    @property
    def has_thinking(self) -> bool:
        """Whether the vocabulary has tokens that mark the start and end of thinking."""
        return self.think_start is not None

    @property
    def think_start(self) -> str | None:
        return self._thinking[0]

    @property
    def think_end(self) -> str | None:
        return self._thinking[1]

    @property
    def think_start_id(self) -> int | None:
        return self._id_of(self.think_start)

    @property
    def think_end_id(self) -> int | None:
        return self._id_of(self.think_end)

    @property
    def think_start_tokens(self) -> tuple[int, ...] | None:
        token = self.think_start_id
        return None if token is None else (token,)

    @property
    def think_end_tokens(self) -> tuple[int, ...] | None:
        token = self.think_end_id
        return None if token is None else (token,)

    def _id_of(self, text: str | None) -> int | None:
        return None if text is None else int(self._tokenizer.get_vocab()[text])

    # ---- all else --------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._tokenizer)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or hasattr(type(self), name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name == "has_tool_calling" or name.startswith("tool_"):
            raise AttributeError(f"{name!r} is not offered: {_TOOLS}")
        return getattr(self._tokenizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or hasattr(type(self), name):
            super().__setattr__(name, value)
        else:
            setattr(self._tokenizer, name, value)


class Detokenizer:
    """Turns a stream of tokens into text; a special token becomes its name.

    As in mlx-lm, the space at the start of a text is removed.

    Attributes:
        text: The text so far, without an incomplete character at its end.
        tokens: The tokens so far.
        offset: Number of characters that `last_segment` has returned.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._most_trimmed = _spaces_left_out(tokenizer.wrapped)
        self.reset()

    def reset(self) -> None:
        """Start a new text."""
        self.text, self.offset = "", 0
        self.tokens: list[int] = []
        self._stream = TextStream(self._bytes)
        self._num_trimmed = 0

    def add_token(self, token: int) -> None:
        """Append a token."""
        self.tokens.append(token)
        self._add(self._stream.push(token))

    def finalize(self) -> None:
        """Append the pending text; an incomplete character becomes U+FFFD."""
        self._add(self._stream.finish())

    @property
    def last_segment(self) -> str:
        """The text since the last access of this property."""
        segment, self.offset = self.text[self.offset :], len(self.text)
        return segment

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
    """Return a tokenizer that has `detokenizer` and `eos_token_ids`.

    It accepts the second value of `load`, mlx-lm's own wrapper, or the tokenizer in either.

    Raises:
        TypeError: It is none of these.
    """
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
    """Return the tokens of a prompt: token ids, an array of them, or a text.

    A text that starts with the start token does not get another one.

    Raises:
        TypeError: It is none of these, or a text without a tokenizer.
    """
    if isinstance(prompt, str) and tokenizer is not None:
        start = tokenizer.bos_token
        is_bare = start is None or not prompt.startswith(start)
        return list(tokenizer.encode(prompt, add_special_tokens=is_bare))
    tokens = prompt.tolist() if hasattr(prompt, "tolist") else prompt
    if not isinstance(tokens, list | tuple) or not all(map(_is_token, tokens)):
        or_text = "a text, or " if tokenizer is not None else ""
        raise TypeError(
            f"a prompt is {or_text}token ids in a list or in an array of one axis; got "
            f"{type(prompt).__name__}"
        )
    return [int(token) for token in tokens]


def _is_token(value: Any) -> bool:
    # Integral includes NumPy's integers
    return isinstance(value, Integral) and not isinstance(value, bool)


def _spaces_left_out(tokenizer: PreTrainedTokenizerFast) -> float:
    """Return the maximum number of spaces to remove at the start of a text, one per token."""
    decoder = json.loads(tokenizer.backend_tokenizer.to_str())["decoder"] or {}
    steps = decoder.get("decoders", [])
    if any(step.get("type") == "Strip" and step.get("start") for step in steps):
        return math.inf
    return 1 if decoder.get("type") == "ByteLevel" else 0
