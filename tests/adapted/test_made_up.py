"""A type that nobody has seen is admitted by its examination alone.

The model file is made up here: parallel attention and MLP, a rotary class of its own with another
argument order, a decaying memory beside the attention, and a head that is scaled and capped.
"""

import sys
from dataclasses import dataclass
from types import ModuleType

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten
from mlx_lm.generate import generate_step
from mlx_lm.models.base import (
    BaseModelArgs,
    create_attention_mask,
    scaled_dot_product_attention,
)
from mlx_lm.models.cache import ArraysCache, CacheList, KVCache

import mlxspec
from mlxspec import GenerationParams
from tests.support.model_folders import save_folder, tiny_config
from tests.support.tiny import emitted

PROMPT = [5, 9, 2, 7, 11, 8, 4, 12]
LENGTH = 40


@dataclass
class ModelArgs(BaseModelArgs):
    model_type: str
    vocab_size: int
    width: int = 32
    depth: int = 3
    heads: int = 4


class Turn(nn.Module):
    def __init__(self, size):
        super().__init__()
        self._rates = 10.0 ** -mx.arange(0, size // 2, dtype=mx.float32)

    def __call__(self, rows, *, offset=0):
        at = mx.array(offset).reshape(-1, 1) + mx.arange(rows.shape[2])[None]
        angles = at[:, None, :, None] * self._rates
        a, b = mx.split(rows, 2, axis=-1)
        cos, sin = mx.cos(angles), mx.sin(angles)
        return mx.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


class Memory(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate = nn.Linear(width, width)

    def __call__(self, states, cache):
        held, seen = cache[0], []
        for row in range(states.shape[1]):
            new = mx.tanh(self.gate(states[:, row]))
            held = new if held is None else 0.7 * held + new
            seen.append(held)
        cache[0] = held
        return mx.stack(seen, axis=1)


class Block(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.heads, width = args.heads, args.width
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.memory = Memory(width)
        self.turn = Turn(width // args.heads)

    def __call__(self, x, mask, cache):
        B, L, width = x.shape
        rows = self.norm(x)
        parts = mx.split(self.mix(rows), 3, axis=-1)
        q, k, v = (part.reshape(B, L, self.heads, -1).swapaxes(1, 2) for part in parts)
        q, k = self.turn(q, offset=cache[1].offset), self.turn(k, offset=cache[1].offset)
        k, v = cache[1].update_and_fetch(k, v)
        seen = scaled_dot_product_attention(q, k, v, cache=cache[1], scale=0.4, mask=mask)
        return x + self.out(seen.swapaxes(1, 2).reshape(B, L, width)) + self.memory(rows, cache[0])


class Trunk(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.words = nn.Embedding(args.vocab_size, args.width)
        self.blocks = [Block(args) for _ in range(args.depth)]
        self.last = nn.RMSNorm(args.width)

    def __call__(self, tokens, cache):
        x = 3.0 * self.words(tokens)
        mask = create_attention_mask(x, cache[0][1])
        for block, own in zip(self.blocks, cache, strict=True):
            x = block(x, mask, own)
        return self.last(x)


class Model(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.args, self.model_type = args, args.model_type
        self.trunk = Trunk(args)

    def __call__(self, inputs, cache=None):
        states = self.trunk(inputs, cache)
        return 9.0 * mx.tanh(self.trunk.words.as_linear(states) / 3.0)

    @property
    def layers(self):
        return self.trunk.blocks

    def make_cache(self):
        return [CacheList(ArraysCache(size=1), KVCache()) for _ in self.layers]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of the made-up type, whose file lies among those of mlx-lm."""
    module = ModuleType("mlx_lm.models.made_up")
    module.Model, module.ModelArgs = Model, ModelArgs
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    config = {"model_type": "made_up", "vocab_size": tiny_config()["vocab_size"]}
    mx.random.seed(2)
    model = Model(ModelArgs.from_dict(config))
    weights = {name: 2 * array for name, array in tree_flatten(model.parameters())}
    return save_folder(tmp_path / "model", config, weights), model, weights


def test_a_type_that_nobody_has_seen_is_admitted_with_trees(folder):
    path, model, weights = folder
    model.load_weights(list(weights.items()))
    expected = [int(t) for t, _ in generate_step(mx.array(PROMPT), model, max_tokens=LENGTH)]
    engine = mlxspec.load(path, drafter="pool")
    assert engine.target.draft_support == "tree"
    tokens = emitted(engine.generate(PROMPT, GenerationParams(max_tokens=LENGTH)))
    assert tokens == expected[: len(tokens)]
    assert len(tokens) == LENGTH or tokens[-1] in engine.tokenizer.eos_token_ids
    assert len(set(tokens)) > 2  # a text of one token would prove little
