"""A draft rolls back to every depth over every kind of cache, as if it had never been read.

The truth is mlx-lm: its model, token by token, over its own cache of the same kind.
"""

from copy import deepcopy

import mlx.core as mx
import pytest
from mlx_lm.models.cache import QuantizedKVCache, RotatingKVCache, make_prompt_cache

from mlxspec.adapted.model import AdaptedModel
from mlxspec.decoder.decoder import Decoder
from mlxspec.device.packed import Quantization
from mlxspec.drafts.tree import DraftTree
from mlxspec.kv.cache import Cache
from tests.support.tiny_adapted import adapted, source
from tests.support.zoo import CHAIN, PARENTS, PATH, TOKENS, TOLERANCE, build, error, tree_of

TEXT = [5, 9, 2, 7, 11, 8, 4, 12, 3, 3, 6, 10, 1]  # longer than each window, chunk and ring below
VOCAB = 32
RING = {"max_size": 9, "keep": 2}
PACKING = Quantization.for_head_dim(8, 32)
ONE_CODE = 3e-2  # a number on the edge of two codes may get either, as a BLAS rounds

# By kind of cache: a type of the zoo. Those of `CHAINS` verify chains only.
KINDS = {
    "rows": "llama",
    "windows": "gemma3_text",
    "states": "mamba2",
    "rows and states by layer": "qwen3_5",
    "rows and states in a layer": "falcon_h1",
    "rows that layers share": "gemma3n",
    "rows that layers share, as one cache": "afm7",
    "rows read as sequences": "ministral3",
    "rows that an index picks": "deepseek_v32",
    "chunks": "llama4",
}
CHAINS = ("llama4",)


def assert_rollbacks(decoder, module, make_cache, parents, tolerance):
    """Commit a whole path, go back into it at every depth, and to the text before it."""
    path = PATH if parents == PARENTS else list(range(len(parents)))
    after_text, cache = logits_after(module, make_cache(), TEXT)
    by_node, caches = [], {-1: cache}
    for node, parent in enumerate(parents):
        logits, caches[node] = logits_after(module, deepcopy(caches[parent]), [TOKENS[node]])
        by_node.append(logits)
    decoder.observe(TEXT)
    for kept in range(len(path), -1, -1):
        drafted = decoder.tree_logits(tree_of(parents))
        assert error(drafted, mx.stack(by_node)) < tolerance
        decoder.forward_tree(tree_of(parents))
        decoder.commit(path)
        decoder.rollback_to(len(TEXT) + kept)
        truth = by_node[path[kept - 1]] if kept else after_text
        assert error(decoder.next_logits(), truth) < tolerance
        decoder.rollback_to(len(TEXT))


def logits_after(module, cache, tokens):
    """mlx-lm's logits after tokens that are read one by one, and the cache."""
    for token in tokens:
        logits = module(mx.array([[token]]), cache=cache)[0, -1]
        mx.eval(logits)
    return logits, cache


@pytest.mark.parametrize("kind", KINDS)
def test_a_draft_rolls_back_to_every_depth(kind):
    name = KINDS[kind]
    plain = build(name)
    model, shape = AdaptedModel(build(name)), PARENTS
    if name in CHAINS:
        model.draft_support, shape = "chain", CHAIN
    assert_rollbacks(Decoder(model), plain, lambda: make_prompt_cache(plain), shape, TOLERANCE)


@pytest.mark.parametrize("name", ["baichuan_m1", "falcon_h1"])
def test_rounds_of_one_token_say_what_mlx_lm_says(name):
    """Where rows and states belong to one module, or to one layer."""
    plain, decoder = build(name), Decoder(AdaptedModel(build(name)))
    decoder.observe(TEXT)
    for count, token in enumerate(TOKENS[:3], 1):
        root = DraftTree.from_lists([token], [-1])
        truth = logits_after(plain, make_prompt_cache(plain), [*TEXT, *TOKENS[:count]])[0]
        assert error(decoder.tree_logits(root)[0], truth) < TOLERANCE
        decoder.forward_tree(root)
        decoder.commit([0])


@pytest.mark.parametrize("name", ["llama", "lfm2"])
def test_a_draft_rolls_back_to_every_depth_in_a_ring_that_has_wrapped(name):
    plain, model = (make(name, vocab_size=VOCAB) for make in (source, adapted))

    def rings():
        return [
            RotatingKVCache(**RING) if hasattr(own, "keys") else own
            for own in make_prompt_cache(plain)
        ]

    decoder = Decoder(model, Cache.for_model(model.config, **RING))
    assert_rollbacks(decoder, plain, rings, PARENTS, TOLERANCE)


def test_a_draft_rolls_back_to_every_depth_over_packed_rows():
    plain, model = (make("qwen3", vocab_size=VOCAB, head_dim=32) for make in (source, adapted))

    def packed():
        return [QuantizedKVCache(group_size=32, bits=8) for _ in plain.layers]

    decoder = Decoder(model, Cache.for_model(model.config, quantization=PACKING))
    assert_rollbacks(decoder, plain, packed, PARENTS, ONE_CODE)
