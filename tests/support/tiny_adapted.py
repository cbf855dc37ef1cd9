"""Tiny random models of mlx-lm, adapted and as they are; the latter say what is true."""

import importlib
from functools import cache

import mlx.core as mx
import mlx.utils
import numpy as np
from mlx_lm.generate import generate_step

from mlxspec.adapted.model import AdaptedModel
from tests.support.truth import exact_distribution

VOCAB = 24
SETTINGS = {
    "llama": {},
    "qwen3": {},
    "gemma2": {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "lfm2": {  # short convolutions around one layer with attention
        "norm_eps": 1e-5,
        "conv_bias": False,
        "conv_L_cache": 3,
        "block_dim": 32,
        "block_ff_dim": 48,
        "block_multiple_of": 8,
        "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": True,
        "full_attn_idxs": [1],
    },
    "gemma3_text": {"sliding_window": 4, "sliding_window_pattern": 2},
    "mamba2": {
        "num_heads": 4,
        "head_dim": 16,
        "intermediate_size": 64,
        "state_size": 8,
        "layer_norm_epsilon": 1e-5,
        "conv_kernel": 3,
        "n_groups": 2,
        "use_bias": False,
        "use_conv_bias": False,
        "time_step_limit": [0.01, 10],
        "time_step_rank": "auto",
    },
    "deepseek_v3": {  # a row is a small vector, from which all heads make keys and values
        "kv_lora_rank": 8,
        "q_lora_rank": 8,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 16,
        "n_routed_experts": None,
        "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
    },
    "ministral3": {  # the model's own code scales queries by their position
        "sliding_window": 4,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        "rope_parameters": {
            "rope_theta": 1000.0,
            "llama_4_scaling_beta": 0.5,
            "original_max_position_embeddings": 4,
        },
    },
    "falcon_h1": {  # attention and a state in every layer
        "num_hidden_layers": 2,
        "mamba_d_head": 8,
        "mamba_n_heads": 4,
        "mamba_d_ssm": 32,
        "mamba_d_state": 8,
    },
}


def source(kind: str, *, vocab_size: int = VOCAB, seed: int = 5, **settings):
    """A model of mlx-lm whose next token depends strongly on the tokens before."""
    module = importlib.import_module(f"mlx_lm.models.{kind}")
    common = {
        "model_type": kind,
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "intermediate_size": 48,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "rms_norm_eps": 1e-5,
        "vocab_size": vocab_size,
        "rope_theta": 10000.0,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
    }
    arguments = {**common, **SETTINGS[kind], **settings}
    model = module.Model(module.ModelArgs.from_dict(arguments))
    key, weights = mx.random.key(seed), []
    for name, array in mlx.utils.tree_flatten(model.parameters()):
        key, own = mx.random.split(key)
        scale, least = (0.1, 1.0) if "norm" in name else (0.4, 0.0)
        weights.append((name, least + scale * mx.random.normal(array.shape, key=own)))
    model.load_weights(weights)
    mx.eval(model.parameters())
    return model


def adapted(kind: str, **settings) -> AdaptedModel:
    """The same model as a target; arguments as in `source`."""
    return AdaptedModel(source(kind, **settings))


def twin_of(port) -> AdaptedModel:
    """A tiny Llama of mlx-lm, adapted, with the weights of our port's."""
    model = source("llama", hidden_size=64, num_hidden_layers=2, intermediate_size=64, head_dim=32)
    model.load_weights(mlx.utils.tree_flatten(port.parameters()))
    return AdaptedModel(model)


@cache
def greedy(kind: str, prompt: tuple[int, ...], count: int, **settings) -> list[int]:
    """The greedy text that mlx-lm itself writes."""
    steps = generate_step(mx.array(prompt), source(kind, **settings), max_tokens=count)
    return [token for token, _ in steps]


def joint_law(model, prompt, sampling, length, vocab_size) -> dict[tuple[int, ...], float]:
    """The probability of every text of some tokens, by a model of mlx-lm without a cache."""
    law = {(): 1.0}
    for _ in range(length):
        law = {
            (*text, token): prob * float(own)
            for text, prob in law.items()
            for token, own in enumerate(_next(model, prompt, text, sampling))
        }
    assert len(law) == vocab_size**length
    return law


def _next(model, prompt, text, sampling):
    logits = np.array(model(mx.array([[*prompt, *text]]))[0, -1], np.float64)
    return exact_distribution(logits, sampling, (*prompt, *text), text)
