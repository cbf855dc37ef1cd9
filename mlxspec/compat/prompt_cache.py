"""A prompt cache with mlx-lm's names: the tokens that a prompt continues.

The engine holds the rows, and reuses those of the common prefix of two consecutive texts.
"""

import json
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any

import mlx.core as mx

from mlxspec.compat.engines import check_max_kv_size, check_model
from mlxspec.engine.engine import Engine
from mlxspec.errors import CacheError

_KEY = "mlxspec.prompt_cache"
_SIZES = "mlxspec.max_kv_sizes"


class PromptCache:
    """The text before the next prompt of a conversation."""

    def __init__(self, tokens: Sequence[int] = (), max_kv_size: int | None = None) -> None:
        """A `max_kv_size` of None is the engine's own cache."""
        self.tokens, self.max_kv_size = list(tokens), max_kv_size
        self.engine: Engine | None = None  # with a cache of that size, from the first use on

    def __deepcopy__(self, memo: object) -> "PromptCache":
        return PromptCache(self.tokens, self.max_kv_size)

    @property
    def offset(self) -> int:
        return len(self.tokens)

    def size(self) -> int:
        return len(self.tokens)

    def empty(self) -> bool:
        return not self.tokens

    def is_trimmable(self) -> bool:
        return True

    def trim(self, num_tokens: int) -> int:
        """Remove tokens from the end; return how many were removed."""
        count = max(0, min(num_tokens, len(self.tokens)))
        del self.tokens[len(self.tokens) - count :]
        return count


def make_prompt_cache(model: Any, max_kv_size: int | None = None) -> list[PromptCache]:
    """Return an empty prompt cache: a list as in mlx-lm, but one entry stands for all layers."""
    check_model(model)
    check_max_kv_size(max_kv_size)
    return [PromptCache(max_kv_size=max_kv_size)]


def save_prompt_cache(
    file_name: str | PathLike[str],
    cache: Sequence[PromptCache],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a prompt cache to a .safetensors file."""
    texts = json.dumps([part.tokens for part in cache])
    sizes = json.dumps([part.max_kv_size for part in cache])
    about = {_KEY: texts, _SIZES: sizes, "metadata": json.dumps(dict(metadata or {}))}
    mx.save_safetensors(fspath(file_name), {"num_parts": mx.array([len(cache)])}, about)


def load_prompt_cache(
    file_name: str | PathLike[str], return_metadata: bool = False
) -> list[PromptCache] | tuple[list[PromptCache], dict[str, str]]:
    """Read a prompt cache from a file; its rows are computed when it is first used."""
    loaded: Any = mx.load(fspath(file_name), return_metadata=True)
    about = loaded[1]
    if _KEY not in about:
        raise CacheError(
            f"{fspath(file_name)} is not a prompt cache of mlxspec: those of mlx-lm hold rows of "
            "its own models; prefill the text again, and save it with "
            "mlxspec.compat.save_prompt_cache"
        )
    texts = json.loads(about[_KEY])
    sizes = json.loads(about[_SIZES]) if _SIZES in about else [None] * len(texts)
    cache = [PromptCache(*part) for part in zip(texts, sizes, strict=True)]
    return (cache, json.loads(about["metadata"])) if return_metadata else cache


def cached_tokens(cache: Sequence[PromptCache] | None) -> list[int]:
    """Return the tokens of a prompt cache; [] if `cache` is None."""
    if not all(isinstance(part, PromptCache) for part in cache or ()):
        raise CacheError(
            "prompt_cache is not one of mlxspec: make it with mlxspec.compat.make_prompt_cache"
        )
    return list(cache[0].tokens) if cache else []
