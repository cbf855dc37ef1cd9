"""Logits of Hugging Face thousands of tokens into a text (see make_long_goldens.py)."""

import json
from dataclasses import dataclass
from functools import cache

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from mlxspec.decoder.decoder import Decoder
from mlxspec.device.packed import Quantization
from mlxspec.drafts.tree import DraftTree
from mlxspec.kv.cache import Cache
from mlxspec.models import Model, ModelConfig, build_model
from tests.support.paths import GOLDENS

FOLDER = GOLDENS / "long"
CASES, CONFIGS = mx.load(str(FOLDER / "cases.safetensors"), return_metadata=True)
BASE = mx.load(str(FOLDER / "base.safetensors"))
TREE = DraftTree.from_lists(BASE["tree_tokens"].tolist(), BASE["tree_parents"].tolist())
NUM_ROWS = 4
DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}


@dataclass(frozen=True)
class LongGolden:
    """A text, a model, and logits at the end of the text and of a tree behind it.

    Attributes:
        raw_config: Content of the config.json.
        text: All tokens before the tree.
        ring: Size and attention sinks of the rotating cache of the logits, or None.
        dtype: Type of the weights.
        rows: (NUM_ROWS, V) logits of the last tokens of the text.
        nodes: (n_nodes, V) logits of the nodes of `TREE`.
        half: Rows and nodes, concatenated, as Hugging Face computes them in half precision.
    """

    raw_config: dict
    text: list[int]
    ring: dict | None
    dtype: mx.Dtype
    rows: np.ndarray
    nodes: np.ndarray
    half: np.ndarray | None

    @property
    def said(self) -> np.ndarray:
        """The logits of the rows above those of the nodes."""
        return np.concatenate([self.rows, self.nodes])

    def decoder(self, bits: int | None = None, **ring: int) -> Decoder:
        """A decoder with the ring of the golden, or another."""
        model = self.model()
        config = model.config
        packing = Quantization.for_head_dim(bits, config.head_dim) if bits else None
        rows = Cache(config.num_hidden_layers, quantization=packing, **(self.ring or ring))
        return Decoder(model, rows)

    def model(self) -> Model:
        """The model with those rows of the weights that its config has."""
        model = build_model(ModelConfig.from_dict(self.raw_config))
        model.load_weights(
            [
                (name, BASE[name][tuple(slice(size) for size in array.shape)].astype(self.dtype))
                for name, array in tree_flatten(model.parameters())
            ]
        )
        return model


@cache
def load_long_golden(name: str) -> LongGolden:
    case = json.loads(CONFIGS[name])
    logits, half = np.array(CASES[name]), CASES.get(f"{name}.half")
    return LongGolden(
        raw_config=case["config"],
        text=BASE["text"].tolist()[: case["length"]],
        ring=case["ring"],
        dtype=DTYPES[case["dtype"]],
        rows=logits[:NUM_ROWS],
        nodes=logits[NUM_ROWS:],
        half=None if half is None else np.array(half),
    )


def read_to_the_end(decoder: Decoder, text: list[int]) -> np.ndarray:
    """(NUM_ROWS, V) float32 logits of the last tokens of a text, which is read in chunks."""
    decoder.observe(text[:-NUM_ROWS])
    end = text[-NUM_ROWS:]
    logits = decoder.logits(decoder.extend_chain(mx.array(end, mx.int32)))
    mx.eval(logits)
    decoder.commit_chain(end)
    return np.array(logits.astype(mx.float32))


def tree_says(decoder: Decoder) -> np.ndarray:
    """(n_nodes, V) float32 logits of `TREE`; nothing is committed."""
    return np.array(decoder.tree_logits(TREE).astype(mx.float32))
