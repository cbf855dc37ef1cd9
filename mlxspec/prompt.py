"""What a prompt must be, checked before anything is read, and how much of it was read before."""

from collections.abc import Callable, Sequence
from itertools import compress, count
from operator import ne
from typing import Any

from mlxspec.errors import ContextLengthError
from mlxspec.params.checks import token_ids


def prompt_tokens(
    prompt: object, encode: Callable[[str], list[int]], name: str = "the prompt"
) -> list[int]:
    """Return the tokens of a prompt.

    Args:
        prompt: Text, or token ids in a sequence or in an array of one axis.
        encode: Reads text.
        name: What to call it.

    Raises:
        ValueError: It is anything else, or text that cannot be read.
    """
    if isinstance(prompt, str):
        return encode(prompt)
    return token_ids(name, prompt, "text, or token ids in a list or array")


def check_prompt(
    tokens: Sequence[int],
    vocab_size: int,
    context_length: int | None,
    name: str,
    prompt: str = "the prompt",
) -> None:
    """Raise where a model cannot take a prompt.

    Args:
        tokens: The prompt.
        vocab_size: Tokens that the model knows.
        context_length: Tokens that fit; None without a limit.
        name: Of the model.
        prompt: What to call it.

    Raises:
        ValueError: The prompt is empty or holds a token outside the vocabulary.
        ContextLengthError: It is longer than the context.
    """
    if not tokens:
        raise ValueError(f"{prompt} is empty: give at least one token")
    if context_length is not None and len(tokens) > context_length:
        raise ContextLengthError(
            f"{prompt} has {len(tokens)} tokens; {name or 'the model'} takes {context_length}: "
            "shorten it, or use a rotating cache (max_kv_size)",
            context_length,
        )
    bad = [token for token in tokens if not 0 <= token < vocab_size]
    if bad:
        raise ValueError(
            f"{prompt} does not fit: token {bad[0]} is not in the vocabulary of 0 to "
            f"{vocab_size - 1}"
        )


def are_texts(value: Any) -> bool:
    """Return whether a value of JSON is a list of texts that a tokenizer can read, none empty."""
    return isinstance(value, list) and len(value) > 0 and all(map(_is_text, value))


def is_utf8(text: str) -> bool:
    """Return whether a text can be written as UTF-8: half of a surrogate pair is no character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and is_utf8(value)


def common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the number of tokens with which both sequences begin."""
    differences = compress(count(), map(ne, first, second))  # a chat has 100,000 to compare
    return next(differences, min(len(first), len(second)))
