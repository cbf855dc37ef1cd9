"""Refusals of arguments that would change the reply and have no equivalent here."""

from typing import Any

from mlxspec.engine.engine import Engine
from mlxspec.errors import UnsupportedOperationError


def refuse(name: str, value: object, reason: str) -> None:
    """Raise UnsupportedOperationError with the reason if an argument has a value."""
    if value:
        raise UnsupportedOperationError(f"{name} is not supported here: {reason}")


def check_engine(model: Any, name: str = "model") -> Engine:
    """Return `model` if it is an engine.

    Raises:
        UnsupportedOperationError: It is no engine.
    """
    if not isinstance(model, Engine):
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        raise UnsupportedOperationError(
            f"{name} has to be an engine, as mlxspec.compat.load returns it; got {kind}: load it "
            "with mlxspec.compat.load"
        )
    return model


def check_max_kv_size(engine: Engine, max_kv_size: int | None) -> None:
    """Raise UnsupportedOperationError unless the engine's cache has this size."""
    size = engine.target.cache.max_size
    if max_kv_size is not None and max_kv_size != size:
        raise UnsupportedOperationError(
            f"max_kv_size={max_kv_size} is not supported here, as the engine's cache has "
            f"{size or 'no limit'}: give max_kv_size to load"
        )


def check_kv_bits(
    engine: Engine, kv_bits: int | None, kv_group_size: int, quantized_kv_start: int
) -> None:
    """Raise UnsupportedOperationError unless the engine's cache is quantised like this."""
    if kv_bits is None:
        return
    packing = engine.target.cache.quantization
    if packing is None or kv_bits != packing.bits:
        have = f"{packing.bits} bits" if packing else "keys and values without quantisation"
        raise UnsupportedOperationError(
            f"kv_bits={kv_bits} is not supported here, as the engine's cache holds {have}: give "
            "kv_bits to load"
        )
    if kv_group_size != packing.group_size:
        raise UnsupportedOperationError(
            f"kv_group_size={kv_group_size} is not supported here: the engine's cache has "
            f"groups of {packing.group_size}; pass that size"
        )
    if quantized_kv_start != 0:
        raise UnsupportedOperationError(
            f"quantized_kv_start={quantized_kv_start} is not supported here, as rows are quantised "
            "when they are committed: give 0"
        )
