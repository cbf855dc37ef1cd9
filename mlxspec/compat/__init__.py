"""The names and arguments of mlx-lm's generation, so that a script changes one import.

    from mlxspec.compat import load, stream_generate   # was: from mlx_lm import ...

    model, tokenizer = load("mlx-community/Qwen2.5-0.5B-Instruct-4bit")
    for response in stream_generate(model, tokenizer, prompt, max_tokens=200):
        print(response.text, end="", flush=True)

The first value of `load` is an engine with its drafter. The functions also accept a model from
`mlx_lm.load`: at its first use it is compared with mlx-lm's plain decoding, once per machine, and
gets an engine with the drafter "pool", which is freed with it. Every argument of mlx-lm 0.32 has
the same position and meaning here, or raises a `TypeError` that names it and the reason.
`docs/python.md`, "From mlx-lm", lists what is refused and the three things that differ.
"""

from typing import Any

from mlx_lm.generate import BatchResponse, BatchStats  # type: ignore[attr-defined]
from mlx_lm.models.cache import can_trim_prompt_cache, trim_prompt_cache

from mlxspec.compat.batch import batch_generate
from mlxspec.compat.generation import (
    GenerationResponse,
    generate,
    generate_step,
    stream_generate,
)
from mlxspec.compat.loading import load
from mlxspec.compat.prompt_cache import (
    PromptCache,
    load_prompt_cache,
    make_prompt_cache,
    save_prompt_cache,
)
from mlxspec.compat.sampling import SamplerLaw, make_logits_processors, make_sampler
from mlxspec.compat.tokenizer import Detokenizer, TokenizerWrapper

__all__ = [
    "BatchResponse",
    "BatchStats",
    "Detokenizer",
    "GenerationResponse",
    "PromptCache",
    "SamplerLaw",
    "TokenizerWrapper",
    "batch_generate",
    "can_trim_prompt_cache",
    "generate",
    "generate_step",
    "load",
    "load_prompt_cache",
    "make_logits_processors",
    "make_prompt_cache",
    "make_sampler",
    "save_prompt_cache",
    "stream_generate",
    "trim_prompt_cache",
]

_NOT_OFFERED = {
    "BatchGenerator": "batch_generate and Engine.generate_batch reply to a list of prompts",
    "KVCache": "the engine holds the rows; use make_prompt_cache",
    "RotatingKVCache": "pass max_kv_size to load, make_prompt_cache or a call",
    "QuantizedKVCache": "pass kv_bits to load or a call",
    "convert": "convert a model with mlx_lm.convert; load reads the folder that it writes",
    "speculative_generate_step": "use stream_generate, which drafts and accepts a draft_model",
}


def __getattr__(name: str) -> Any:
    if name in _NOT_OFFERED:
        raise ImportError(f"{name} is not offered by mlxspec.compat: {_NOT_OFFERED[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
