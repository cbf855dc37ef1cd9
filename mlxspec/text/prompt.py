"""Checks of a prompt before the prefill."""

from collections.abc import Callable, Sequence
from typing import Any

from mlxspec.errors import ContextLengthError
from mlxspec.params.checks import token_ids


def prompt_tokens(
    prompt: object, encode: Callable[[str], list[int]], name: str = "the prompt"
) -> list[int]:
    """Return the tokens of a prompt: text, or token ids in a sequence or an array of one axis.

    `name` names the prompt in messages.

    Raises:
        ValueError: It is anything else, or text that cannot be encoded.
    """
    if isinstance(prompt, str):
        return encode(prompt)
    return token_ids(name, prompt, "text, or token ids in a list or array")


def predicted_tokens(text: str | None, encode: Callable[..., list[int]]) -> list[int]:
    """Return the tokens of a predicted reply, without a start token; [] for None.

    `encode` works as `Tokenizer.encode`.

    Raises:
        ValueError: It cannot be encoded.
    """
    return encode(text, add_special_tokens=False) if text else []


def check_prompt(
    tokens: Sequence[int],
    vocab_size: int,
    context_length: int | None,
    name: str,
    prompt: str = "the prompt",
) -> None:
    """Raise if a prompt does not fit a model.

    `context_length` is None without a limit. Messages name the model `name` and the prompt
    `prompt`.

    Raises:
        ValueError: The prompt is empty or has a token outside the vocabulary.
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
    """Return whether a JSON value is a non-empty list of non-empty UTF-8 texts."""
    return isinstance(value, list) and len(value) > 0 and all(map(_is_text, value))


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
    """Return whether a text can be encoded as UTF-8: a lone surrogate cannot."""
    try:
        check_utf8(text)
    except ValueError:
        return False
    return True


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and is_utf8(value)
