"""The names and arguments of mlx-lm's generation, so that a script changes one import.

    from mlxspec.compat import load, stream_generate   # was: from mlx_lm import ...

    model, tokenizer = load("mlx-community/Qwen2.5-0.5B-Instruct-4bit")
    for response in stream_generate(model, tokenizer, prompt, max_tokens=200):
        print(response.text, end="", flush=True)

The first value of `load` is an engine, drafter and all. Every argument of mlx-lm 0.32 stands at its
place and does what it does there, or is refused with an `UnsupportedOperationError`:

| argument | why it is refused |
|---|---|
| `model`, `draft_model` of `mlx_lm.load` | rounds need an engine, as `load` here returns it |
| `load`: `tokenizer_config`, `model_config` | a model is read as it is stored |
| `load`: `adapter_path` | weights are read whole; fuse the adapter first |
| `load`: `lazy` | weights are laid out for this machine while they are read |
| `load`: `revision` | a hub model is taken as it is in the cache, or in its latest state |
| `max_kv_size`, `kv_bits`, `kv_group_size`, unless the engine's | an engine has one cache |
| `quantized_kv_start` but 0, with `kv_bits` | rows are quantised as they are committed |
| `input_embeddings` | drafts are tokens, and so is the text that they continue |
| `stream` | the engine computes on streams of its own |
| `batch_generate`: `prefill_batch_size` | prompts are read one after the other |
| `tokenizer`: tool calls | parsing them is no part of generation here |
| `BatchGenerator` and other names | see what importing them says |

Three things differ and change no law. `sampler` may be a `Law`; what `make_sampler` returns is one,
with mlx-lm's order of filters. Functions, as `sampler` or among `logits_processors`, are called for
every node of a draft with its own text, so they must not count their calls. A prompt cache holds
the text, and the engine the rows: with several of them in turn, rows are read again.
"""

from typing import Any

from mlxspec.compat.batch import BatchResponse, BatchStats, batch_generate
from mlxspec.compat.generation import (
    GenerationResponse,
    generate,
    generate_step,
    stream_generate,
)
from mlxspec.compat.loading import load
from mlxspec.compat.processors import make_logits_processors
from mlxspec.compat.prompt_cache import (
    PromptCache,
    can_trim_prompt_cache,
    load_prompt_cache,
    make_prompt_cache,
    save_prompt_cache,
    trim_prompt_cache,
)
from mlxspec.compat.samplers import SamplerLaw, make_sampler
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
    "KVCache": "rows stay with the engine; make_prompt_cache returns what a script needs of them",
    "RotatingKVCache": "give max_kv_size to load",
    "QuantizedKVCache": "give kv_bits to load",
    "convert": "convert a model with mlx_lm.convert; load reads the folder that it writes",
    "speculative_generate_step": "stream_generate drafts by itself; it takes a draft_model as well",
}


def __getattr__(name: str) -> Any:
    if name in _NOT_OFFERED:
        raise ImportError(f"{name} is not offered by mlxspec.compat: {_NOT_OFFERED[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
