"""Medusa heads for tiny targets: random ones, and ones that reproduce a text."""

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from mlxspec.drafters.medusa import MedusaDrafter, MedusaHeads

TARGET_IDS = (1, 2, 3, 5, 7, 8, 11, 12, 13, 17, 18, 20, 21, 23)  # of a reduced vocabulary


def medusa_tensors(model, *, num_heads=3, num_blocks=1, own=0, reduced=False, seed=4):
    """Random tensors under their normalised names; `own` is the width of output layers."""
    size, key = model.config.hidden_size, mx.random.key(seed)
    shapes = {}
    for head in range(num_heads):
        for block in range(num_blocks):
            shapes[f"heads.{head}.blocks.{block}.weight"] = (size, size)
            shapes[f"heads.{head}.blocks.{block}.bias"] = (size,)
        if own:
            shapes[f"heads.{head}.out.weight"] = (own, size)
    tensors = {}
    for name, shape in shapes.items():
        key, sub = mx.random.split(key)
        tensors[name] = mx.random.normal(shape, key=sub) * 0.2
    if reduced:
        tensors["token_map"] = mx.array(TARGET_IDS, mx.int32)
    return tensors


def medusa_config(model, **settings):
    return {"hidden_size": model.config.hidden_size, **settings}


def medusa_drafter(decoder, *, accuracies=None, **settings):
    """A drafter with random heads for the target of a decoder."""
    tensors = medusa_tensors(decoder.model, **settings)
    config = medusa_config(decoder.model, accuracies=accuracies)
    return MedusaDrafter(MedusaHeads.from_checkpoint(config, tensors), decoder)


class StateSpy:
    """Records the final states of all committed tokens."""

    capture = ()

    def __init__(self):
        self.num_read, self.states = 0, []

    def read(self, tokens, states):
        self.num_read += len(tokens)
        self.states += [row.tolist() for row in states.final]

    def forget(self, length):
        self.num_read, self.states = length, self.states[:length]


def knowing_drafter(decoder, text, *, num_heads=3, accuracies=None):
    """A drafter whose head i predicts token t + 2 + i of `text` at every token t of it.

    Its blocks add nothing. Its output layers are the exact solution for the target's states along
    the text, so the text must have fewer tokens than a state has numbers.
    """
    spy = StateSpy()
    decoder.attach([spy])
    for token in text:
        decoder.observe([token])
    decoder.attach([])
    decoder.reset()
    states, width = np.array(spy.states), decoder.vocab_size
    config = medusa_config(decoder.model, accuracies=accuracies)
    heads = MedusaHeads(config, num_heads, num_outputs=width)
    zeros = [(name, mx.zeros_like(array)) for name, array in tree_flatten(heads.parameters())]
    heads.load_weights(zeros)
    for index, head in enumerate(heads.heads):
        says = np.eye(width)[text[2 + index :]] * 20
        head.out.weight = mx.array(np.linalg.lstsq(states[: len(says)], says)[0].T, mx.float32)
    return MedusaDrafter(heads, decoder)
