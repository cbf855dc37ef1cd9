"""A prompt cache with mlx-lm's names: the tokens that a prompt continues.

The engine itself holds the rows of keys and values. It reuses those of the longest common prefix
of two texts in a row.
"""

import json
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any

import mlx.core as mx

from mlxspec.compat.refusals import check_engine, check_max_kv_size
from mlxspec.engine.engine import Engine
from mlxspec.errors import CacheError

_KEY = "mlxspec.prompt_cache"


class PromptCache:
    """The text before the next prompt of a conversation.

    Attributes:
        tokens: Tokens of the text.
    """

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self.tokens = list(tokens)

    @property
    def offset(self) -> int:
        """Number of tokens."""
        return len(self.tokens)

    def size(self) -> int:
        """Return the number of tokens."""
        return len(self.tokens)

    def empty(self) -> bool:
        """Return whether the cache holds no token."""
        return not self.tokens

    def is_trimmable(self) -> bool:
        """Return True: any number of tokens can be removed from the end."""
        return True

    def trim(self, num_tokens: int) -> int:
        """Remove tokens from the end; return how many were removed."""
        count = max(0, min(num_tokens, len(self.tokens)))
        del self.tokens[len(self.tokens) - count :]
        return count


def make_prompt_cache(model: Engine, max_kv_size: int | None = None) -> list[PromptCache]:
    """Return an empty prompt cache: a list as in mlx-lm, but one entry stands for all layers.

    Raises:
        UnsupportedOperationError: The engine's cache has another size.
    """
    check_max_kv_size(check_engine(model), max_kv_size)
    return [PromptCache()]


def can_trim_prompt_cache(cache: Sequence[PromptCache]) -> bool:
    """Return whether tokens can be removed from the end."""
    return all(part.is_trimmable() for part in cache)


def trim_prompt_cache(cache: Sequence[PromptCache], num_tokens: int) -> int:
    """Remove tokens from the end; return how many were removed."""
    return max((part.trim(num_tokens) for part in cache), default=0)


def save_prompt_cache(
    file_name: str | PathLike[str],
    cache: Sequence[PromptCache],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a prompt cache to a .safetensors file."""
    texts = json.dumps([part.tokens for part in cache])
    about = {_KEY: texts, "metadata": json.dumps(dict(metadata or {}))}
    mx.save_safetensors(fspath(file_name), {"num_parts": mx.array([len(cache)])}, about)


def load_prompt_cache(
    file_name: str | PathLike[str], return_metadata: bool = False
) -> list[PromptCache] | tuple[list[PromptCache], dict[str, str]]:
    """Read a prompt cache from a file; its rows are computed when it is first used.

    Raises:
        CacheError: The file was not written by `save_prompt_cache`.
    """
    loaded: Any = mx.load(fspath(file_name), return_metadata=True)
    about = loaded[1]
    if _KEY not in about:
        raise CacheError(
            f"{fspath(file_name)} is no prompt cache of mlxspec: those of mlx-lm hold rows of its "
            "own models; prefill the text again, and save it with mlxspec.compat.save_prompt_cache"
        )
    cache = [PromptCache(tokens) for tokens in json.loads(about[_KEY])]
    return (cache, json.loads(about["metadata"])) if return_metadata else cache


def cached_tokens(cache: Sequence[PromptCache] | None) -> list[int]:
    """Return the tokens of a prompt cache; no tokens where `cache` is None.

    Raises:
        CacheError: The cache was not made by `make_prompt_cache`.
    """
    if cache is None:
        return []
    if not all(isinstance(part, PromptCache) for part in cache):
        raise CacheError(
            "prompt_cache is not one of mlxspec: make it with mlxspec.compat.make_prompt_cache"
        )
    return list(cache[0].tokens) if cache else []
