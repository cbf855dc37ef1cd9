"""Check from headers, before weights are loaded, whether a model can read a text in memory.

On a GPU, a process that uses too much memory ends without a message.
"""

from bisect import bisect_right
from dataclasses import dataclass, replace
from pathlib import Path

from mlxspec.decoder.decoder import PREFILL_CHUNK
from mlxspec.device import backend
from mlxspec.device.memory import usable_gb, working_set_bytes
from mlxspec.errors import Say, UnsupportedModelError, UnsupportedOperationError
from mlxspec.loading.profile import (
    ModelProfile,
    cache_bytes,
    is_possible,
    read_profile,
    work_bytes,
)
from mlxspec.models import ModelConfig, TargetConfig, TargetModel
from mlxspec.params.load import DEFAULT_KEEP

_SAID_FROM = 2**30  # bytes: smaller models load in a moment

MEMORY_TOKENS = 4096  # of a full cache that count; a shorter context counts in full


@dataclass(frozen=True)
class Room:
    """The other contents of the memory: the cache of a model, and other models."""

    max_kv_size: int | None = None  # rows of a rotating cache; None for a full cache
    kv_bits: int | None = None  # None for keys and values that are not quantised
    beside: int = 0  # bytes of other models that stay loaded
    ranks: int = 1  # processes that share the model


def counted_tokens(config: TargetConfig, max_kv_size: int | None = None) -> int:
    """Return the tokens whose keys and values count in the memory of a model; 0 if unknown."""
    if not config.kv_numbers:
        return 0
    if max_kv_size is not None:
        return max_kv_size
    return min(MEMORY_TOKENS, config.max_position_embeddings)


def check_room(path: Path, name: str, dtype: str, room: Room, say: Say = lambda line: None) -> None:
    """Raise UnsupportedModelError if a model, its cache and others do not fit in memory."""
    try:
        profile = read_profile(path)
    except UnsupportedModelError:
        return
    config, stored = profile.config, profile.packed_bytes + profile.float_bytes
    if isinstance(config, ModelConfig) and not is_possible(config, stored):
        return
    needed = _bytes(profile, dtype, room)
    if needed / backend.GB > usable_gb():
        raise UnsupportedModelError(_refusal(profile, name, dtype, room))
    if needed >= _SAID_FROM:
        say(f"{_needs(profile, name, dtype, room)}, of {usable_gb():.1f} GB")


def context_that_fits(model: TargetModel, kv_bits: int | None = None) -> int | None:
    """Return how many tokens of context fit in memory with a model on a GPU; None on a CPU."""
    usable = working_set_bytes()
    if usable == 0:
        return None
    lengths = range(1, model.config.max_position_embeddings + 1)
    return bisect_right(lengths, usable, key=lambda n: bytes_to_read(model, n, kv_bits))


def bytes_to_read(model: TargetModel, num_tokens: int, kv_bits: int | None = None) -> int:
    """Return the most bytes that a built model takes to read a text: weights, rows, the work."""
    of = model.config, num_tokens, model.dtype.size, kv_bits
    return model.nbytes + cache_bytes(*of) + work_bytes(*of)


def _bytes(profile: ModelProfile, dtype: str, room: Room) -> int:
    """Return the bytes that a process needs."""
    return _own_bytes(profile, dtype, room) // room.ranks + room.beside


def _own_bytes(profile: ModelProfile, dtype: str, room: Room) -> int:
    """Return the bytes that all processes of a model need."""
    tokens = counted_tokens(profile.config, room.max_kv_size)
    if tokens and room.max_kv_size is not None:
        tokens += PREFILL_CHUNK  # rows wait beside the ring until they are committed
    return profile.memory_bytes(tokens, dtype, room.kv_bits)


def _largest_that_fits(profile: ModelProfile, dtype: str, room: Room) -> str:
    """Return the settings nearest to these with which a model fits, for a message."""
    usable, tokens = usable_gb(), counted_tokens(profile.config, room.max_kv_size)
    try:  # heads of some sizes cannot be quantised
        for bits in (8, 4):
            needed = _bytes(profile, dtype, replace(room, kv_bits=bits))
            if bits < (room.kv_bits or 16) and needed / backend.GB <= usable:
                return f"--kv-bits {bits} fits"
    except UnsupportedOperationError:
        pass
    most = bisect_right(
        range(1, tokens + 1),
        usable,
        key=lambda rows: _bytes(profile, dtype, replace(room, max_kv_size=rows)) / backend.GB,
    )
    if most > DEFAULT_KEEP:
        return f"--max-kv-size {most} fits"
    text = _own_bytes(profile, dtype, room) - profile.weight_bytes(dtype)
    free = (usable * backend.GB - room.beside) * room.ranks - text
    each = 8 * free / max(profile.num_weights, 1)
    return f"a model of as many weights fits with less than {max(0.0, each):.1f} bits a weight"


def _refusal(profile: ModelProfile, name: str, dtype: str, room: Room) -> str:
    if backend.is_cpu():
        has, do = "this machine has", "choose a smaller model, or a machine with a GPU"
    else:
        has = "the GPU of this machine recommends at most"
        do = f"choose a smaller model; {_largest_that_fits(profile, dtype, room)}"
    return f"{_needs(profile, name, dtype, room)}; {has} {usable_gb():.1f} GB: {do}"


def _needs(profile: ModelProfile, name: str, dtype: str, room: Room) -> str:
    """Return the memory that a model needs, for a message."""
    tokens = counted_tokens(profile.config, room.max_kv_size)
    weights = profile.weight_bytes(dtype)
    text = _own_bytes(profile, dtype, room) - weights
    bound = "" if profile.is_exact else "at most "
    words = ""
    if backend.is_cpu():
        words = f" as {profile.computes_in(dtype)}, which a CPU computes in,"
    reading = f"{text / backend.GB:.1f} GB to read {tokens:,} tokens"
    if not profile.config.kv_numbers:
        reading = "keys and values, whose size is known once it is built"
    beside = f", beside {room.beside / backend.GB:.1f} GB of another model" if room.beside else ""
    return f"{name} takes {bound}{weights / backend.GB:.1f} GB{words} and {reading}{beside}"
