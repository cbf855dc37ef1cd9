"""Makes tests/goldens/ with Hugging Face transformers in float32; run by hand, never by a test.

    pip install torch transformers safetensors && python -m tests.goldens.make_goldens

Each variant is one small safetensors file: a config.json as a user would have it (in the
metadata), seeded weights (float16, exactly representable), tokens, positions, and the logits that
Hugging Face computes. `rope.json` holds the rotary frequencies that it gives configs with the
settings of published models, whose weights would be too large to store.
"""

import json
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from tests.support.paths import GOLDENS

FOLDER = GOLDENS
BASE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
}
LLAMA = {**BASE, "model_type": "llama", "num_key_value_heads": 2, "eos_token_id": 2}
MISTRAL = {**BASE, "model_type": "mistral", "num_key_value_heads": 2, "rope_theta": 10000.0}
QWEN2 = {**BASE, "model_type": "qwen2", "num_key_value_heads": 2, "rope_theta": 1000000.0}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 512,
}
CONTIGUOUS = list(range(24))
# Distances, not positions, decide what attention sees: only gaps show a wrong scaling.
FAR = [0, 1, 2, 3, 40, 41, 42, 300, 301, 1000, 1001, 1002, 2048, 2049, 4096, 4097, 4100]

VARIANTS = {
    "llama_mha": ({**LLAMA, "num_key_value_heads": 4, "rope_scaling": None}, CONTIGUOUS),
    "llama_gqa_tied": ({**LLAMA, "tie_word_embeddings": True, "head_dim": None}, CONTIGUOUS),
    "llama_bias": ({**LLAMA, "attention_bias": True, "mlp_bias": True}, CONTIGUOUS),
    "llama_head_dim": (
        {**LLAMA, "head_dim": 12, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
        CONTIGUOUS,
    ),
    "llama_linear": ({**LLAMA, "rope_scaling": {"type": "linear", "factor": 4.0}}, FAR),
    "llama_llama3": (
        {**LLAMA, "max_position_embeddings": 4096, "rope_theta": 5e5, "rope_scaling": LLAMA3},
        FAR,
    ),
    "llama_llama3_new": (
        {
            **LLAMA,
            "max_position_embeddings": 4096,
            "rope_parameters": {**LLAMA3, "rope_theta": 2e4},
        },
        FAR,
    ),
    "llama_yarn": (
        {
            **LLAMA,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 16.0,
                "original_max_position_embeddings": 256,
            },
        },
        FAR,
    ),
    "qwen2_yarn": (
        {
            **QWEN2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "rope_scaling": {"type": "yarn", "factor": 4.0, "beta_fast": 8, "beta_slow": 0.5},
        },
        FAR,
    ),
    "qwen2_untied": (
        {**QWEN2, "sliding_window": 4, "use_sliding_window": False, "max_window_layers": 1},
        CONTIGUOUS,
    ),
    "qwen2_tied": ({**QWEN2, "tie_word_embeddings": True, "sliding_window": None}, FAR),
    "qwen2_windows": (
        {
            **QWEN2,
            "num_hidden_layers": 3,
            "sliding_window": 5,
            "use_sliding_window": True,
            "max_window_layers": 1,
        },
        CONTIGUOUS,
    ),
    "qwen2_layer_types": (
        {
            **QWEN2,
            "sliding_window": 5,
            "use_sliding_window": True,
            "max_window_layers": 2,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        CONTIGUOUS,
    ),
    "mistral_window": ({**MISTRAL, "sliding_window": 7}, CONTIGUOUS),
    "mistral_null_window": ({**MISTRAL, "sliding_window": None, "head_dim": 16}, FAR),
    "mistral_layer_types": (
        {
            **MISTRAL,
            "head_dim": 8,
            "sliding_window": 7,
            "layer_types": ["full_attention", "sliding_attention"],
        },
        CONTIGUOUS,
    ),
}

PUBLISHED_ROPES = {
    "llama-3.2-1b": {
        "head_dim": 64,
        "max_position_embeddings": 131072,
        "rope_theta": 500000.0,
        "rope_scaling": {**LLAMA3, "factor": 32.0, "original_max_position_embeddings": 8192},
    },
    "llama-3.1-8b, length at the top": {
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "original_max_position_embeddings": 8192,
        "rope_parameters": {**LLAMA3, "rope_theta": 500000.0},
    },
    "qwen2.5-7b with yarn": {
        "head_dim": 128,
        "max_position_embeddings": 32768,
        "rope_theta": 1000000.0,
        "rope_scaling": {
            "type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 32768,
        },
    },
    "yarn-llama-2-7b-128k": {
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "truncate": False,
            "mscale": 0.7,
            "mscale_all_dim": 0.3,
        },
    },
    "yarn with a given attention factor": {
        "head_dim": 64,
        "max_position_embeddings": 65536,
        "rope_scaling": {
            "type": "default",
            "rope_type": "yarn",
            "factor": None,
            "original_max_position_embeddings": 4096,
            "attention_factor": 1.3,
        },
    },
    "yarn from a length beyond all wavelengths": {
        "head_dim": 64,
        "max_position_embeddings": 131072,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0},
    },
    "vicuna-7b-16k": {
        "head_dim": 128,
        "max_position_embeddings": 4096,
        "rope_theta": 10000,
        "rope_scaling": {"type": "linear", "factor": 4},
    },
    "theta in both places": {
        "head_dim": 64,
        "max_position_embeddings": 4096,
        "rope_theta": 777.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0},
    },
    "both sections": {
        "head_dim": 64,
        "max_position_embeddings": 4096,
        "rope_theta": 777.0,
        "rope_scaling": {"type": "linear", "factor": 2.0},
        "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0},
    },
    "nothing said": {"head_dim": 64, "max_position_embeddings": 4096},
}


def read_config(values: dict) -> transformers.PretrainedConfig:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(values))
        return AutoConfig.from_pretrained(folder)


def seed_weights(model: torch.nn.Module, seed: int) -> None:
    """Weights large enough for sharp attention and logits of a few units."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=generator)
        if name.endswith("norm.weight"):
            values = 1 + 0.3 * noise
        elif weight.ndim == 1:
            values = 0.5 * noise
        else:
            values = 1.2 * noise / weight.shape[-1] ** 0.5
        weight.data.copy_(values.half().float())


def make_variant(name: str, values: dict, positions: list[int], seed: int) -> None:
    model = AutoModelForCausalLM.from_config(
        read_config(values), attn_implementation="eager", dtype=torch.float32
    ).eval()
    seed_weights(model, seed)
    tokens = torch.randint(64, (1, len(positions)), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        logits = model(
            tokens,
            position_ids=torch.tensor([positions]),
            attention_mask=torch.ones_like(tokens),  # else a gap counts as a new sequence
        ).logits[0]
    tensors = {
        f"weights.{key}": weight.half().contiguous()
        for key, weight in model.state_dict().items()
        if not (key == "lm_head.weight" and values.get("tie_word_embeddings"))
    }
    tensors["tokens"] = tokens[0].int()
    tensors["positions"] = torch.tensor(positions, dtype=torch.int32)
    tensors["logits"] = logits.contiguous()
    save_file(tensors, FOLDER / f"{name}.safetensors", {"config": json.dumps(values)})


def rope_of(values: dict) -> dict:
    whole = {**LLAMA, "hidden_size": 4 * values["head_dim"], **values}
    rope = LlamaRotaryEmbedding(read_config(whole))
    return {
        "config": whole,
        "inverse_frequencies": rope.inv_freq.tolist(),
        "attention_factor": float(rope.attention_scaling),
    }


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for seed, (name, (values, positions)) in enumerate(VARIANTS.items()):
        make_variant(name, values, positions, seed)
    ropes = {name: rope_of(values) for name, values in PUBLISHED_ROPES.items()}
    (FOLDER / "rope.json").write_text(json.dumps(ropes, indent=1) + "\n")


if __name__ == "__main__":
    main()
