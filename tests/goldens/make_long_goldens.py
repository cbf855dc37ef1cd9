"""Makes tests/goldens/long/ with Hugging Face transformers; run by hand, never by a test.

    pip install torch transformers safetensors && python -m tests.goldens.make_long_goldens

One random text and one set of small weights (float16, exactly representable) serve all cases. A
case is a config, a length of the text and a dtype; kept of it are what Hugging Face says at the
last rows of that text, and at every node of a tree behind it, each path read as a text of its own.

Everything is computed in float64, but for the rotary angles, which Hugging Face has in float32
always. A case in half precision rounds the weights first and computes in float64 as well; what
Hugging Face says in the half precision itself is kept beside it, to show how far off one may be.
"""

import copy
import json

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, DynamicCache

from tests.goldens.make_goldens import LLAMA3, read_config, seed_weights
from tests.support.paths import GOLDENS

FOLDER = GOLDENS / "long"
CHUNK = 512
# The tree reaches over the border of the 4,096 or 32,768 tokens that the text does not fill.
NEAR, FAR = 4093, 32765
NUM_ROWS = 4
TREE_TOKENS = [7, 50, 23, 11, 50, 3, 60, 31, 5, 12, 44, 23]
TREE_PARENTS = [-1, 0, 0, 1, 1, 2, 3, 6, 7, 8, 8, 9]  # eight deep: more than a window of five

LLAMA = {
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 65536,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}
MISTRAL = {**LLAMA, "model_type": "mistral", "sliding_window": 48}
QWEN2 = {**LLAMA, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 5}
SCALINGS = {
    "plain": None,
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {**LLAMA3, "original_max_position_embeddings": 1024},
    "yarn": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 2048},
}
SINKS = {"max_size": 68, "keep": 4}  # a rotating cache: a ring of 64 beside the kept tokens


def case(config: dict, length: int, dtype: str = "float32", ring: dict | None = None) -> dict:
    return {"config": config, "length": length, "dtype": dtype, "ring": ring}


def cases() -> dict[str, dict]:
    found = {}
    for name, scaling in SCALINGS.items():
        config = {**LLAMA, "rope_scaling": scaling}
        found[f"near_{name}"] = case(config, NEAR)
        found[f"far_{name}_sinks"] = case(config, FAR, ring=SINKS)
    small = {**LLAMA, "num_hidden_layers": 1, "num_attention_heads": 1}
    found["far_llama3"] = case({**small, "rope_scaling": SCALINGS["llama3"]}, FAR)
    for place, length in (("near", NEAR), ("far", FAR)):
        found[f"{place}_mistral_window"] = case(MISTRAL, length)
        found[f"{place}_qwen2_windows"] = case({**QWEN2, "max_window_layers": 0}, length)
    found["near_qwen2_upper_window"] = case({**QWEN2, "max_window_layers": 1}, NEAR)
    for dtype in ("bfloat16", "float16"):
        found[f"near_{dtype}"] = case(LLAMA, NEAR, dtype)
    found["far_bfloat16_sinks"] = case(small, FAR, "bfloat16", SINKS)
    return found


def base_weights() -> dict[str, torch.Tensor]:
    """The weights of the largest config: that of Qwen2, for its biases."""
    model = AutoModelForCausalLM.from_config(read_config(QWEN2), dtype=torch.float32)
    seed_weights(model, 11)
    weights = model.state_dict()
    for name, weight in weights.items():
        if "q_proj" in name or "k_proj" in name:
            weight *= 2  # sharp attention, or far rows would count for nothing
    return {name: weight.half().contiguous() for name, weight in weights.items()}


def build(config: dict, weights: dict, dtype: torch.dtype) -> torch.nn.Module:
    """The model with those rows of the weights that its config has, rounded to `dtype`."""
    model = AutoModelForCausalLM.from_config(
        read_config(config), attn_implementation="eager", dtype=torch.float32
    ).eval()
    for name, parameter in model.named_parameters():
        cut = tuple(slice(size) for size in parameter.shape)
        parameter.data.copy_(weights[name][cut].float().to(dtype).float())
    return model


def convert(model: torch.nn.Module, dtype: torch.dtype) -> None:
    """Change the weights but not the rotary frequencies, as loading in that dtype does."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)


class Reader:
    """Reads on behind a text, in chunks, with the cache of Hugging Face."""

    def __init__(self, model: torch.nn.Module):
        self.model = model
        self.cache = DynamicCache(config=model.config)

    def read(self, tokens: list[int]) -> torch.Tensor:
        said = []
        for start in range(0, len(tokens), CHUNK):
            chunk = torch.tensor([tokens[start : start + CHUNK]])
            with torch.no_grad():
                said.append(self.model(chunk, past_key_values=self.cache).logits[0])
        return torch.cat(said)


def said_by_all(model: torch.nn.Module, text: list[int]) -> torch.Tensor:
    """(NUM_ROWS + n_nodes, V): the last rows of the text, then the nodes of the tree."""
    reader = Reader(model)
    reader.read(text[:-NUM_ROWS])
    rows = list(reader.read(text[-NUM_ROWS:]))
    for path in PATHS:
        rows.append(copy.deepcopy(reader).read(path)[-1])
    return torch.stack(rows)


def said_with_sinks(model: torch.nn.Module, text: list[int], ring: dict) -> torch.Tensor:
    """The same where a row sees the kept tokens and its ring only.

    Rows further back than the ring, once per layer, reach no logits: they are left out, and the
    others stand at the positions that they have.
    """
    keep, size = ring["keep"], ring["max_size"] - ring["keep"]
    rows = []
    for path, count in (([], NUM_ROWS), *((path, 1) for path in PATHS)):
        line = text + path
        first = len(line) - count - model.config.num_hidden_layers * size
        kept = [*range(keep), *range(first, len(line))]
        positions = torch.tensor(kept)
        age = positions[:, None] - positions[None]
        seen = (age >= 0) & ((age < size) | (positions < keep)[None])
        mask = torch.zeros(seen.shape, dtype=model.dtype)
        with torch.no_grad():
            logits = model(
                torch.tensor([[line[place] for place in kept]]),
                position_ids=positions[None],
                attention_mask=mask.masked_fill(~seen, torch.finfo(mask.dtype).min)[None, None],
            ).logits[0]
        rows += logits[-count:]
    return torch.stack(rows)


def said(model: torch.nn.Module, text: list[int], ring: dict | None) -> torch.Tensor:
    rows = said_with_sinks(model, text, ring) if ring else said_by_all(model, text)
    return rows.float()


def path_to(node: int) -> list[int]:
    above = path_to(TREE_PARENTS[node]) if node else []
    return [*above, TREE_TOKENS[node]]


PATHS = [path_to(node) for node in range(len(TREE_TOKENS))]


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    weights = base_weights()
    text = torch.randint(64, (FAR,), generator=torch.Generator().manual_seed(3))
    tree = {"tree_tokens": torch.tensor(TREE_TOKENS), "tree_parents": torch.tensor(TREE_PARENTS)}
    save_file({**weights, "text": text.to(torch.uint8), **tree}, FOLDER / "base.safetensors")
    arrays = {}
    for name, made in cases().items():
        dtype = getattr(torch, made["dtype"])
        model = build(made["config"], weights, dtype)
        convert(model, torch.float64)
        line = text[: made["length"]].tolist()
        arrays[name] = said(model, line, made["ring"])
        if dtype != torch.float32:
            convert(model, dtype)
            arrays[f"{name}.half"] = said(model, line, made["ring"])
        print(name, arrays[name].abs().max().item(), flush=True)
    metadata = {name: json.dumps(made) for name, made in cases().items()}
    save_file(arrays, FOLDER / "cases.safetensors", metadata)


if __name__ == "__main__":
    main()
