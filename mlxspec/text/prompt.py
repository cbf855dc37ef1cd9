"""Checks of a prompt before the prefill."""

from collections.abc import Sequence
from typing import Any

from mlxspec.errors import ContextLengthError


def check_prompt(
    tokens: Sequence[int],
    vocab_size: int,
    context_length: int | None,
    name: str,
    prompt: str = "the prompt",
) -> None:
    """Raise if a prompt does not fit a model; `name` and `prompt` name the two in messages."""
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
    """Return whether a JSON value is a non-empty list of non-empty UTF-8 texts."""
    return (
        isinstance(value, list)
        and len(value) > 0
        and all(isinstance(one, str) and one.strip() and is_utf8(one) for one in value)
    )


def check_utf8(text: str) -> None:
    """Raise ValueError with the position of a lone surrogate, as from bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the text is not UTF-8: its character {error.start + 1} is "
            f"{text[error.start]!a}; give it as UTF-8"
        ) from error


def is_utf8(text: str) -> bool:
    """Return whether a text has no lone surrogate."""
    try:
        check_utf8(text)
    except ValueError:
        return False
    return True
