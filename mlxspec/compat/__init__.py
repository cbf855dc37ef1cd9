"""The names and arguments of mlx-lm's generation, so that a script changes one import.

    from mlxspec.compat import load, stream_generate   # was: from mlx_lm import ...

    model, tokenizer = load("mlx-community/Qwen2.5-0.5B-Instruct-4bit")
    for response in stream_generate(model, tokenizer, prompt, max_tokens=200):
        print(response.text, end="", flush=True)

The first value of `load` is an engine with its drafter. The functions also accept a model from
`mlx_lm.load`: at its first use it is compared with mlx-lm's plain decoding, once per machine, and
gets an engine with the drafter "pool", which is freed with it. Every argument of mlx-lm 0.32 has
the same position and meaning here, or raises a `TypeError` that names it and the reason. One means
more: mlx-lm ignores `max_kv_size` for models that make their own caches, such as Gemma 3; here it
bounds the cache of every model, so a longer text can differ there. These are refused:

- `load`: `lazy`, `trust_remote_code`; in `tokenizer_config` also `chat_template_type`,
  `tool_parser_type` and `use_fast=False`; `tokenizer_config` of a GGUF file, whose header describes
  the tokenizer; `revision` of a folder or a file
- `kv_bits` other than 8 and 4, `kv_group_size` other than 64 and 32, and a `quantized_kv_start`
  that a text can pass: rows are quantised when they are committed
- `max_kv_size` with a prompt cache of another size, and prompt caches of several sizes in a batch
- `prompt_cache` of mlx-lm, which holds rows of mlx-lm: use `make_prompt_cache`
- `input_embeddings`, `stream`, `prefill_batch_size`
- `BatchGenerator` and other names: the import error gives the reason

Three things differ, and none changes the output distribution. First, `sampler` may be a
`SamplingParams`; `make_sampler` returns one with mlx-lm's order of filters. Second, functions in
`sampler` or `logits_processors` are called for every node of a draft, with the text up to that
node, so they must not count their calls. Third, a prompt cache holds tokens, and the engine holds
the rows: with several prompt caches in turn, the engine computes rows again. A call whose
`max_kv_size` or `kv_bits` differ from the engine's gets its own cache, and its text is prefilled
again unless a prompt cache holds it.
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
