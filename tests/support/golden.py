"""The goldens of Hugging Face: configs, weights, tokens and logits (see make_goldens.py)."""

import json
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from mlxspec.models import Model, ModelConfig, build_model
from tests.support.paths import GOLDENS

FOLDER = GOLDENS
NAMES = sorted(path.stem for path in FOLDER.glob("*.safetensors"))


@dataclass(frozen=True)
class Golden:
    raw_config: dict
    weights: dict[str, mx.array]
    tokens: list[int]
    positions: list[int]
    logits: np.ndarray

    @property
    def config(self) -> ModelConfig:
        return ModelConfig.from_dict(self.raw_config)

    def model(self) -> Model:
        """The model with the golden's weights; loading is strict, so every name must be equal."""
        model = build_model(self.config)
        model.load_weights(list(self.weights.items()), strict=True)
        return model


def load_golden(name: str) -> Golden:
    arrays, metadata = mx.load(str(FOLDER / f"{name}.safetensors"), return_metadata=True)
    return Golden(
        raw_config=json.loads(metadata["config"]),
        weights={
            key.removeprefix("weights."): array.astype(mx.float32)
            for key, array in arrays.items()
            if key.startswith("weights.")
        },
        tokens=arrays["tokens"].tolist(),
        positions=arrays["positions"].tolist(),
        logits=np.array(arrays["logits"]),
    )
