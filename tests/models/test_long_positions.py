"""Thousands of tokens into a text, rows and trees say what Hugging Face says there.

The text is read in chunks, its last rows are looked at, then a tree that reaches over the border of
4,096 or 32,768 tokens, then what follows a branch that was committed. Far into a text only a ring
is quick enough to be filled in a test, but for one small model; its kept tokens stand as far back
as any row of a full cache. In half precision the truth is float64 on the rounded weights; what
Hugging Face and MLX-LM say in it shows how far from the truth one may be, row by row. The logits
are those of `tests/goldens/make_long_goldens.py`.
"""

import dataclasses
import json
from functools import cache

import mlx.core as mx
import mlx_lm.models.llama
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache

from mlxspec.decoder.decoder import PREFILL_CHUNK, Decoder
from mlxspec.device.packed import Quantization
from mlxspec.drafts.tree import DraftTree
from mlxspec.kv.cache import Cache
from mlxspec.models import ModelConfig, build_model
from tests.support.halves import assert_as_near, errors
from tests.support.paths import GOLDENS
from tests.support.reference import tree_masks
from tests.support.truth import QuantisedConcatCache

FOLDER = GOLDENS / "long"
CASES, CONFIGS = mx.load(str(FOLDER / "cases.safetensors"), return_metadata=True)
BASE = mx.load(str(FOLDER / "base.safetensors"))
TREE = DraftTree.from_lists(BASE["tree_tokens"].tolist(), BASE["tree_parents"].tolist())
NUM_ROWS = 4
DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}


@dataclasses.dataclass(frozen=True)
class LongGolden:
    """A text, a model, and logits at the end of the text and of a tree behind it."""

    raw_config: dict
    text: list[int]
    ring: dict | None  # of the rotating cache of the logits
    dtype: mx.Dtype  # of the weights
    said: np.ndarray  # (NUM_ROWS + n_nodes, V), of the last tokens of the text, then of `TREE`
    half: np.ndarray | None  # the same as Hugging Face computes it in half precision

    rows = property(lambda self: self.said[:NUM_ROWS])
    nodes = property(lambda self: self.said[NUM_ROWS:])

    def decoder(self, bits=None, **ring):
        """A decoder with the ring of the golden, or another."""
        model = self.model()
        config = model.config
        packing = Quantization.for_head_dim(bits, config.head_dim) if bits else None
        rows = Cache(config.num_hidden_layers, quantization=packing, **(self.ring or ring))
        return Decoder(model, rows)

    def model(self):
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
def load_long_golden(name):
    case = json.loads(CONFIGS[name])
    half = CASES.get(f"{name}.half")
    return LongGolden(
        raw_config=case["config"],
        text=BASE["text"].tolist()[: case["length"]],
        ring=case["ring"],
        dtype=DTYPES[case["dtype"]],
        said=np.array(CASES[name]),
        half=None if half is None else np.array(half),
    )


def read_to_the_end(decoder, text):
    """(NUM_ROWS, V) float32 logits of the last tokens of a text, which is read in chunks."""
    decoder.observe(text[:-NUM_ROWS])
    end = text[-NUM_ROWS:]
    logits = decoder.logits(decoder.extend_chain(mx.array(end, mx.int32)))
    mx.eval(logits)
    decoder.commit_chain(end)
    return np.array(logits.astype(mx.float32))


def tree_says(decoder):
    """(n_nodes, V) float32 logits of `TREE`; nothing is committed."""
    return np.array(decoder.tree_logits(TREE).astype(mx.float32))


BRANCH, BEHIND = [0, 1, 3, 6], [7, 8, 9, 11]  # nodes of one path; the first do not lie in a row
# Angles are float32, and Hugging Face's frequencies too: a rounding of one turns a row by 2e-4 at
# 4,096 and by 2e-3 at 32,768. A quantised value may fall into the next bucket.
ATOL = {"near": 1e-3, "far": 5e-3, "quantised": 0.02}
FULL = [
    "near_plain",
    "near_linear",
    "near_llama3",
    "near_yarn",
    "near_mistral_window",
    "near_qwen2_upper_window",
    "far_llama3",
]
RINGS = {  # a ring as long as the windows, if the golden has none of its own
    "far_plain_sinks": {},
    "far_linear_sinks": {},
    "far_llama3_sinks": {},
    "far_yarn_sinks": {},
    "near_mistral_window": {"max_size": 48},
    "far_mistral_window": {"max_size": 48},
    "near_qwen2_windows": {"max_size": 5},
    "far_qwen2_windows": {"max_size": 5},
}


def assert_close(logits, expected, name):
    np.testing.assert_allclose(logits, expected, atol=ATOL[name.split("_")[0]], rtol=0)


def say_what_hugging_face_says(name, **ring):
    """Compare a text, a tree and a committed branch; return the decoder, the branch committed."""
    golden = load_long_golden(name)
    decoder = golden.decoder(**ring)
    assert_close(read_to_the_end(decoder, golden.text), golden.rows, name)
    assert_close(tree_says(decoder), golden.nodes, name)
    decoder.forward_tree(TREE)
    decoder.commit(BRANCH)
    rest = DraftTree.chain(TREE.tokens[mx.array(BEHIND)])
    assert_close(decoder.tree_logits(rest), golden.nodes[BEHIND], name)
    return decoder


@pytest.mark.parametrize("name", RINGS)
def test_a_ring_says_what_hugging_face_says(name):
    cache = say_what_hugging_face_says(name, **RINGS[name]).cache
    assert cache.num_committed == cache.max_size < cache.offset


@pytest.mark.parametrize("name", FULL)
def test_a_full_cache_says_what_hugging_face_says(name):
    golden = load_long_golden(name)
    decoder = say_what_hugging_face_says(name)
    assert len(decoder) == len(golden.text) + len(BRANCH)
    decoder.rollback_to(len(golden.text))
    assert_close(decoder.next_logits(), golden.rows[-1], name)
    assert_close(tree_says(decoder), golden.nodes, name)


@pytest.mark.parametrize("bits", [8, 4])
def test_a_quantised_cache_says_what_rows_say_that_were_quantised_one_by_one(bits):
    golden = load_long_golden("near_plain")
    text, decoder, plain = golden.text, golden.decoder(bits), QuantisedConcatCache(bits)
    model, length = decoder.model, len(text)
    for start in range(0, length, 512):
        chunk = mx.array([text[start : start + 512]])
        hidden, _ = model.hidden_states(chunk, plain, start, {None: "causal"})
        mx.eval(hidden, plain.rows)
    expected = np.array(model.logits(hidden[0, -NUM_ROWS:]))
    assert np.abs(expected - golden.rows).max() > 0.05  # or nothing was quantised
    assert_close(read_to_the_end(decoder, text), expected, "quantised")
    masks = tree_masks(model, length, TREE.parents.tolist())
    hidden, _ = model.hidden_states(TREE.tokens[None], plain, length + TREE.depths, masks)
    assert_close(tree_says(decoder), np.array(model.logits(hidden[0])), "quantised")


# ---- half precision ------------------------------------------------------------------------


@cache
def our_errors(name):
    """Of the last rows of the text, then of the nodes of the tree."""
    golden = load_long_golden(name)
    decoder = golden.decoder()
    said = np.concatenate([read_to_the_end(decoder, golden.text), tree_says(decoder)])
    return errors(said, golden.said)


@pytest.mark.parametrize("name", ["near_bfloat16", "near_float16", "far_bfloat16_sinks"])
def test_is_as_near_to_the_truth_as_hugging_face(name):
    golden = load_long_golden(name)
    assert_as_near(our_errors(name), errors(golden.half, golden.said))


def test_is_as_near_to_the_truth_as_mlx_lm():
    golden = load_long_golden("near_bfloat16")
    model = golden.model()
    args = mlx_lm.models.llama.ModelArgs.from_dict(dataclasses.asdict(model.config))
    theirs = mlx_lm.models.llama.Model(args)
    theirs.load_weights(tree_flatten(model.parameters()), strict=True)
    cache, text = make_prompt_cache(theirs), golden.text
    for start in range(0, len(text), PREFILL_CHUNK):
        logits = theirs(mx.array([text[start : start + PREFILL_CHUNK]]), cache=cache)
    assert logits.dtype == golden.dtype
    their_rows = np.array(logits[0, -NUM_ROWS:].astype(mx.float32))
    our_rows = our_errors("near_bfloat16")[:NUM_ROWS]
    assert_as_near(our_rows, errors(their_rows, golden.rows))
