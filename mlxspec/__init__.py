"""Lossless speculative decoding on MLX: `load` a model, then `generate` or chat with it."""

from importlib import import_module
from typing import Any

from mlxspec.device import backend

__version__ = "0.1.0"

backend.prepare()

_PUBLIC = {  # name -> its module, imported on first access: the app runs without MLX
    "Conversation": "mlxspec.chat.conversation",
    "Engine": "mlxspec.engine.engine",
    "GenerationParams": "mlxspec.params",
    "Grammar": "mlxspec.params",
    "SamplingParams": "mlxspec.params",
    "load": "mlxspec.api",
    "stream_text": "mlxspec.api",
    "wrap": "mlxspec.api",
}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'mlxspec' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
