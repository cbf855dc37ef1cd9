"""Makes tests/goldens/adapted/ with Hugging Face transformers; run by hand, never by a test.

    pip install torch transformers safetensors && python -m tests.goldens.make_adapted_goldens

In float32, for families that we do not port: mlx-lm's models of them run over our trees. Each
variant is one small safetensors file: a config.json as a user would have it (in the metadata),
seeded weights (float16, exactly representable), a text with its logits, the logits at every node of
a tree behind it, each path read as a text of its own, and the text that greedy decoding appends.

Phi-3's longrope has one set of factors for short texts and one for long ones; mlx-lm has only the
second. So the texts are longer than the length at which Hugging Face takes the long factors.
"""

import json
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from tests.goldens.make_goldens import read_config, seed_weights
from tests.goldens.make_long_goldens import PATHS, TREE_PARENTS, TREE_TOKENS
from tests.support.paths import GOLDENS

FOLDER = GOLDENS / "adapted"
NUM_TOKENS = 40
NUM_GREEDY = 48
BASE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "eos_token_id": None,
    "pad_token_id": None,
    "bos_token_id": None,
}
QWEN3 = {
    **BASE,
    "model_type": "qwen3",
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "rope_scaling": None,
    "use_sliding_window": False,
    "sliding_window": None,
    "tie_word_embeddings": False,
}
# mlx-lm rounds the factor of the embeddings, the root of the hidden size, to bfloat16: that of 64
# is exact. Layers 0, 1 and 3 have the window and the local rotary base.
GEMMA3 = {
    **BASE,
    "model_type": "gemma3_text",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 24,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "rope_scaling": None,
    "sliding_window": 6,
    "sliding_window_pattern": 3,
}
PHI3 = {
    **BASE,
    "model_type": "phi3",
    "hidden_size": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "original_max_position_embeddings": 256,
    "rope_scaling": None,
    "sliding_window": None,
    "tie_word_embeddings": False,
}
LONGROPE = {
    **PHI3,
    "partial_rotary_factor": 0.75,
    "original_max_position_embeddings": 32,
    "tie_word_embeddings": True,
    "rope_scaling": {
        "type": "longrope",
        "short_factor": [1.0, 1.1, 1.2, 1.4, 1.6, 2.0],
        "long_factor": [1.0, 1.5, 2.5, 4.0, 6.0, 9.0],
    },
}
# Layers 0 and 2 are gated delta nets, whose state is a convolution's last inputs and a matrix.
QWEN3_NEXT = {
    **BASE,
    "model_type": "qwen3_next",
    "num_hidden_layers": 4,
    "full_attention_interval": 2,
    "head_dim": 16,
    "partial_rotary_factor": 0.25,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "norm_topk_prob": True,
    "tie_word_embeddings": False,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LINEAR = {"rope_type": "linear", "factor": 8.0}
# With the seed of each: a greedy text without near-ties that repeats itself, so that drafts fit.
VARIANTS = {
    "qwen3_untied": (QWEN3, 1),
    "qwen3_tied_yarn": ({**QWEN3, "tie_word_embeddings": True, "rope_scaling": YARN}, 1),
    "gemma3_windows": (GEMMA3, 6),
    "gemma3_linear": ({**GEMMA3, "sliding_window": 11, "rope_scaling": LINEAR}, 1),
    "phi3_full_rotary": ({**PHI3, "num_key_value_heads": 4}, 8),
    "phi3_partial_rotary": ({**PHI3, "partial_rotary_factor": 0.5}, 7),
    "phi3_longrope": (LONGROPE, 3),
    "qwen3next_states": (QWEN3_NEXT, 8),
}


def logits_of(model: torch.nn.Module, tokens: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0]


def greedy_text(model: torch.nn.Module, tokens: list[int]) -> list[int]:
    text = torch.tensor([tokens])
    said = model.generate(
        text,
        attention_mask=torch.ones_like(text),
        do_sample=False,
        max_new_tokens=NUM_GREEDY,
        output_logits=True,
        return_dict_in_generate=True,
    )
    best = torch.stack(said.logits)[:, 0].topk(2).values
    assert (best[:, 0] - best[:, 1]).min() > 5e-3, "a near-tie: choose another seed"
    return said.sequences[0, len(tokens) :].tolist()


def checkpoint(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The weights by the names that they have in a published file."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        weights = load_file(Path(folder) / "model.safetensors")
    return {f"weights.{key}": weight.half().contiguous() for key, weight in weights.items()}


def make_variant(name: str, values: dict, seed: int) -> None:
    model = AutoModelForCausalLM.from_config(
        read_config(values), attn_implementation="eager", dtype=torch.float32
    ).eval()
    seed_weights(model, seed)
    tokens = torch.randint(64, (NUM_TOKENS,), generator=torch.Generator().manual_seed(seed))
    text = tokens.tolist()
    tensors = checkpoint(model)
    tensors["tokens"] = tokens.int()
    tensors["logits"] = logits_of(model, text)
    tensors["tree_tokens"] = torch.tensor(TREE_TOKENS, dtype=torch.int32)
    tensors["tree_parents"] = torch.tensor(TREE_PARENTS, dtype=torch.int32)
    tensors["tree_logits"] = torch.stack([logits_of(model, text + path)[-1] for path in PATHS])
    tensors["greedy"] = torch.tensor(greedy_text(model, text), dtype=torch.int32)
    save_file(tensors, FOLDER / f"{name}.safetensors", {"config": json.dumps(values)})
    print(name, tensors["logits"].abs().max().item(), tensors["greedy"].tolist(), flush=True)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, (values, seed) in VARIANTS.items():
        make_variant(name, values, seed)


if __name__ == "__main__":
    main()
