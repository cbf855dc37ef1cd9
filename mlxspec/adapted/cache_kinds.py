"""Examines an adapted model over the caches that users can request besides the plain, full one.

mlx-lm does not have, for every model, a cache of sinks and a ring, or one that packs every row. So
the reference here is the model itself, which reads a short text token by token over the same kind
of cache. A model that counts its rows, or compares slots with positions, misreads there.
"""

from collections.abc import Callable, Sequence

import mlx.core as mx

from mlxspec.adapted.model import AdaptedModel
from mlxspec.decoder.decoder import Decoder
from mlxspec.device.backend import values
from mlxspec.device.packed import GROUP_SIZES, Quantization
from mlxspec.drafts.tree import DraftTree
from mlxspec.kv.cache import Cache
from mlxspec.models import CacheKind

_MAX_SIZE, _KEEP = 12, 4
_LENGTH = 16  # tokens of the text: the ring has wrapped

Off = Callable[[mx.array, mx.array], float]
"""Returns the error of logits relative to the correct ones."""


def refused_caches(
    model: AdaptedModel, tree: DraftTree, path: Sequence[int], tolerance: float, off: Off
) -> dict[CacheKind, str]:
    """Return the kinds of cache over which a model is not exact, and why.

    The tree has a shape that the model verifies; the nodes on `path`, from the root down, are
    compared. `tolerance` is the largest relative error that counts as rounding. `off` is
    `relative_error`, made the same for all processes that share the model.
    """
    config = model.config
    found: dict[CacheKind, str] = {}
    if not config.num_row_stores:
        return found

    def examine(make_cache: Callable[[], Cache]) -> str:
        try:
            return _fault(model, make_cache, tree, path, tolerance, off)
        except Exception as error:  # third-party code, over caches that it does not know
            return f"{type(error).__name__}: {str(error)[:200]}"

    if fault := examine(lambda: Cache.for_model(config, max_size=_MAX_SIZE, keep=_KEEP)):
        found["rotating"] = fault
    if config.head_dim and config.head_dim % min(GROUP_SIZES) == 0:
        packing = Quantization.for_head_dim(8, config.head_dim)
        if fault := examine(lambda: Cache.for_model(config, quantization=packing)):
            found["quantised"] = fault
    return found


def _fault(
    model: AdaptedModel,
    make_cache: Callable[[], Cache],
    tree: DraftTree,
    path: Sequence[int],
    tolerance: float,
    off: Off,
) -> str:
    """Return what is wrong with a draft, or with a text read in one forward, or ""."""
    text = [(5 * i * i + 17 * i + 3) % model.config.vocab_size for i in range(_LENGTH)]
    by_tokens, at_once = Decoder(model, make_cache()), Decoder(model, make_cache())
    for token in text:
        by_tokens.observe([token])
    at_once.observe(text)
    if by_tokens.cache.quantization is not None:
        # A number between two codes can cause an error; it is smaller than that of packing all.
        plain = Decoder(model, Cache.for_model(model.config))
        plain.observe(text)
        tolerance = max(tolerance, off(by_tokens.next_logits(), plain.next_logits()))
    whole = off(at_once.next_logits(), by_tokens.next_logits())
    # A model with windows may see more in a text read in one forward, over mlx-lm's caches too.
    if not any(model.config.row_windows) and not whole <= tolerance:
        return f"a text in one piece is {whole:.1e} off, {tolerance:.1e} is allowed"
    got, tokens = by_tokens.tree_logits(tree), values(tree.tokens)
    mx.eval(got)  # before the next forward, as in an examination of the full cache
    for node in path:
        by_tokens.observe([tokens[node]])
        error = off(got[node], by_tokens.next_logits())
        if not error <= tolerance:  # also catches NaN
            return f"a draft is {error:.1e} off, {tolerance:.1e} is allowed"
    return ""
