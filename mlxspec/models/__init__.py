"""The target models: Llama, Mistral and Qwen2 on shared layers, and the interface of any target."""

from mlxspec.models.config import ModelConfig
from mlxspec.models.layers import StagingCache
from mlxspec.models.model import Model
from mlxspec.models.target_model import (
    CacheKind,
    DraftSupport,
    TargetConfig,
    TargetModel,
    check_cache,
    drafts_in_words,
)

build_model = Model  # the public name of what it does
