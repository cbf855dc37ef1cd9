"""Goldens of Hugging Face for models that mlx-lm runs (see make_adapted_goldens.py)."""

import json
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm.utils import load_model

from mlxspec.adapted.model import AdaptedModel
from mlxspec.drafts.tree import DraftTree
from tests.support.paths import GOLDENS

FOLDER = GOLDENS / "adapted"
NAMES = sorted(path.stem for path in FOLDER.glob("*.safetensors"))


@dataclass(frozen=True)
class AdaptedGolden:
    """A model of mlx-lm and what Hugging Face says with its weights.

    Attributes:
        model: mlx-lm's model, adapted.
        tokens: A text.
        logits: (len(tokens), V) logits of it.
        tree: A tree behind it.
        tree_logits: (n_nodes, V) logits of the nodes.
        greedy: The tokens that greedy decoding appends to the text.
    """

    model: AdaptedModel
    tokens: list[int]
    logits: np.ndarray
    tree: DraftTree
    tree_logits: np.ndarray
    greedy: list[int]


@cache
def load_adapted_golden(name: str) -> AdaptedGolden:
    arrays, metadata = mx.load(str(FOLDER / f"{name}.safetensors"), return_metadata=True)
    weights = {
        key.removeprefix("weights."): array.astype(mx.float32)
        for key, array in arrays.items()
        if key.startswith("weights.")
    }
    return AdaptedGolden(
        model=AdaptedModel(_loaded_by_mlx_lm(json.loads(metadata["config"]), weights)),
        tokens=arrays["tokens"].tolist(),
        logits=np.array(arrays["logits"]),
        tree=DraftTree.from_lists(arrays["tree_tokens"].tolist(), arrays["tree_parents"].tolist()),
        tree_logits=np.array(arrays["tree_logits"]),
        greedy=arrays["greedy"].tolist(),
    )


def _loaded_by_mlx_lm(config: dict, weights: dict[str, mx.array]):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(config))
        mx.save_safetensors(str(folder / "model.safetensors"), weights)
        model, _ = load_model(folder)  # evaluates the weights, so the folder may go
    return model
