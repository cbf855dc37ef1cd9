"""The front door: `load` an engine, `stream_text` from it.

import mlxspec

engine = mlxspec.load()
for text in mlxspec.stream_text(engine, "The capital of France is"):
    print(text, end="", flush=True)
"""

from collections.abc import Callable, Iterator, Sequence
from os import PathLike

from mlxspec import backend
from mlxspec.cache import Cache
from mlxspec.decoder import Decoder
from mlxspec.drafters.base import Drafter
from mlxspec.drafters.draft_model import DEFAULT_LOOKAHEAD, DraftModelDrafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.drafters.table import TableDrafter
from mlxspec.engine import Engine
from mlxspec.errors import VocabularyMismatchError
from mlxspec.events import DraftVerified, GenerationFinished, PlainDecoded
from mlxspec.loading import LoadedModel, load_model
from mlxspec.models import ModelConfig
from mlxspec.reply import GenerationParams
from mlxspec.rows import Quantization

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""

HOST_DRAFTERS: dict[str, Callable[[], Drafter]] = {
    "none": NoDrafter,
    "suffix": SuffixDrafter,
    "table": TableDrafter,
    "pool": lambda: PoolDrafter([SuffixDrafter(), TableDrafter()]),
}
"""Drafters that need nothing but the text; "model" needs a second checkpoint."""

DRAFTERS = (*HOST_DRAFTERS, "model")
DEFAULT_KEEP = 4


def load(
    source: str | PathLike[str] | None = None,
    *,
    drafter: str = "pool",
    draft_model: str | PathLike[str] | None = None,
    lookahead: int = DEFAULT_LOOKAHEAD,
    max_kv_size: int | None = None,
    keep: int = DEFAULT_KEEP,
    kv_bits: int | None = None,
    on_progress: Progress | None = None,
) -> Engine:
    """Load a target and its drafter.

    Args:
        source: A folder, a GGUF file or a hub id; None for the default model, which is fetched
            once.
        drafter: One of "none", "suffix", "table", "pool", "model".
        draft_model: Checkpoint for the drafter "model".
        lookahead: Longest chain that a draft model drafts.
        max_kv_size: Rows of a rotating cache; None for a cache that grows.
        keep: First tokens that a rotating cache never evicts.
        kv_bits: 8 or 4 to keep keys and values quantised; this defines the target's law anew,
            for plain decoding and with every drafter alike.
        on_progress: Told about a download.

    Raises:
        MlxspecError: Nothing found under `source`, or it cannot be run.
        ValueError: An argument is out of range, or the drafter is not known.
    """
    check_drafter(drafter, has_draft_model=draft_model is not None)
    backend.check()
    loaded = load_model(source, on_progress=on_progress)
    cache = make_cache(loaded.config, max_kv_size=max_kv_size, keep=keep, kv_bits=kv_bits)
    if draft_model is None:
        chosen = HOST_DRAFTERS[drafter]()
    else:
        small = load_model(draft_model, on_progress=on_progress)
        check_vocabulary(loaded, small)
        small_cache = make_cache(small.config, max_kv_size=max_kv_size, keep=keep)
        decoder = Decoder(small.model, small_cache)
        chosen = DraftModelDrafter(decoder, loaded.config.vocab_size, lookahead)
    return Engine(
        Decoder(loaded.model, cache),
        chosen,
        loaded.tokenizer,
        name=loaded.name,
        weights=loaded.weights,
    )


def make_cache(
    config: ModelConfig,
    *,
    max_kv_size: int | None = None,
    keep: int = DEFAULT_KEEP,
    kv_bits: int | None = None,
) -> Cache:
    """Return an empty cache that fits a model; see `load` for the arguments."""
    packing = None if kv_bits is None else Quantization.for_head_dim(kv_bits, config.head_dim)
    return Cache(config.num_hidden_layers, max_size=max_kv_size, keep=keep, quantization=packing)


def check_drafter(drafter: str, *, has_draft_model: bool) -> None:
    """Raise ValueError unless the drafter is known and has what it needs."""
    if drafter not in DRAFTERS:
        raise ValueError(f"drafter {drafter!r} is not known; choose from {', '.join(DRAFTERS)}")
    if drafter == "model" and not has_draft_model:
        raise ValueError("the drafter 'model' needs a draft model: name a checkpoint")
    if drafter != "model" and has_draft_model:
        raise ValueError(f"the drafter {drafter!r} uses no draft model; choose 'model', or drop it")


def check_vocabulary(target: LoadedModel, draft: LoadedModel) -> None:
    """Raise VocabularyMismatchError unless both models read the same tokenizer.

    Widths of the logits may differ: checkpoints pad them.
    """
    if not target.tokenizer.same_as(draft.tokenizer):
        raise VocabularyMismatchError(
            f"{draft.name} cannot draft for {target.name}: they read different tokenizers "
            f"({draft.tokenizer.vocab_size} and {target.tokenizer.vocab_size} tokens). Choose a "
            "draft model of the same family, or the drafter 'pool', which needs none"
        )


def stream_text(
    engine: Engine, prompt: str | Sequence[int], params: GenerationParams | None = None
) -> Iterator[str]:
    """Yield the text of a reply piece by piece."""
    for event in engine.generate(prompt, params):
        match event:
            case DraftVerified() | PlainDecoded():
                yield "".join(token.text for token in event.emit)
            case GenerationFinished():
                yield event.text
