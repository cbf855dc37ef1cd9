"""Whether a model and its cache fit in memory: told from headers, before any weight is read.

On a GPU a process that takes too much ends without a word. So what the weights and the keys and
values will take is compared with what may be taken, by the same count that `mlxspec models` shows.
"""

from dataclasses import dataclass
from pathlib import Path

from mlxspec.device import backend
from mlxspec.device.memory import usable_gb, working_set_bytes
from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.fetch.profile import ModelProfile, read_profile
from mlxspec.loading.sizes import is_possible, row_bytes
from mlxspec.models import Model, ModelConfig

MEMORY_TOKENS = 4096
"""Tokens whose keys and values count where the cache grows, or the context if that is less."""


@dataclass(frozen=True)
class Room:
    """What a model shares the memory with.

    Attributes:
        max_kv_size: Rows of a rotating cache; None for a cache that grows.
        kv_bits: 8 or 4 where keys and values are kept quantised.
        beside: Bytes of other models that stay.
    """

    max_kv_size: int | None = None
    kv_bits: int | None = None
    beside: int = 0


def counted_tokens(config: ModelConfig, max_kv_size: int | None = None) -> int:
    """Return how many tokens count in the memory that a model takes."""
    if max_kv_size is not None:
        return max_kv_size
    return min(MEMORY_TOKENS, config.max_position_embeddings)


def check_room(path: Path, name: str, dtype: str, room: Room) -> None:
    """Raise UnsupportedModelError where a model, its cache and what stands beside do not fit.

    Args:
        path: Its folder or GGUF file; one that cannot be is left to those who read it.
        name: What to call it.
        dtype: A word of `options.DTYPES`.
        room: What it shares the memory with.
    """
    try:
        profile = read_profile(path)
    except UnsupportedModelError:
        return
    stored = profile.stored
    if not is_possible(profile.config, stored.packed_bytes + stored.float_bytes):
        return
    tokens = counted_tokens(profile.config, room.max_kv_size)
    needed = profile.memory_bytes(tokens, dtype, room.kv_bits) + room.beside
    if needed / backend.GB > usable_gb():
        raise UnsupportedModelError(_refusal(profile, name, dtype, room))


def context_that_fits(model: Model, kv_bits: int | None = None) -> int | None:
    """Return how many tokens of keys and values fit beside a model on a GPU; None if not known."""
    usable = working_set_bytes()
    if usable == 0:
        return None
    return max(0, usable - model.nbytes) // row_bytes(model.config, model.dtype.size, kv_bits)


def _refusal(profile: ModelProfile, name: str, dtype: str, room: Room) -> str:
    tokens = counted_tokens(profile.config, room.max_kv_size)
    weights = profile.weight_bytes(dtype)
    cache = profile.memory_bytes(tokens, dtype, room.kv_bits) - weights
    beside = f", beside {room.beside / backend.GB:.1f} GB of another model" if room.beside else ""
    if backend.is_cpu():
        words = f" as {profile.computes_in(dtype)}, which a CPU computes in,"
        has, do = "this machine has", "choose a smaller model, or a machine with a GPU"
    else:
        words, has = "", "the GPU of this machine recommends at most"
        do = "choose a smaller model or one of fewer bits, or --kv-bits, or a smaller --max-kv-size"
    return (
        f"{name} takes {weights / backend.GB:.1f} GB{words} and {cache / backend.GB:.1f} GB for "
        f"keys and values of {tokens:,} tokens{beside}; {has} {usable_gb():.1f} GB: {do}"
    )
