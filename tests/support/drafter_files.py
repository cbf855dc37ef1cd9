"""Writes trained-drafter files as the trainers do, with weights from a fixed seed."""

import json

import mlx.core as mx
import numpy as np

HIDDEN = 32
"""Width of the tiny model of `model_folders`."""


def save_drafter(path, kind, config, tensors, target="", **card):
    """Write a file of mlxspec's format for the target of a fingerprint."""
    card = {"target": {"name": "tiny", "fingerprint": target}, **card}
    metadata = {
        "format": "mlxspec-drafter",
        "kind": kind,
        "config": json.dumps(config),
        "card": json.dumps(card),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(path), tensors, metadata)
    return path


def medusa_parts(num_heads=2, seed=0):
    """Config and tensors of tied Medusa heads of one block."""
    draw = np.random.default_rng(seed)
    tensors = {}
    for head in range(num_heads):
        name = f"heads.{head}.blocks.0"
        tensors[f"{name}.weight"] = mx.array(draw.normal(size=(HIDDEN, HIDDEN)).astype("f4"))
        tensors[f"{name}.bias"] = mx.zeros((HIDDEN,))
    config = {"hidden_size": HIDDEN, "vocab_size": 24, "num_heads": num_heads, "num_layers": 1}
    return config, tensors


def nonsense_parts():
    """A Medusa head whose most probable token is the target's least probable one."""
    tensors = {
        "heads.0.blocks.0.weight": -3 * mx.eye(HIDDEN),
        "heads.0.blocks.0.bias": mx.full((HIDDEN,), 100.0),  # large: silu lets it all through
    }
    return {"hidden_size": HIDDEN, "vocab_size": 24, "num_heads": 1, "num_layers": 1}, tensors
