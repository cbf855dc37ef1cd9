"""The target models: Llama, Mistral and Qwen2 on shared layers."""

from mlxspec.models.config import ModelConfig
from mlxspec.models.layers import StagingCache
from mlxspec.models.model import Model

__all__ = ["Model", "ModelConfig", "StagingCache", "build_model"]


def build_model(config: ModelConfig) -> Model:
    """Return the model that `config` describes, with random weights."""
    return Model(config)
