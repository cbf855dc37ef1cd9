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

MakeCache = Callable[[], Cache]

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
    text = [(5 * i * i + 17 * i + 3) % config.vocab_size for i in range(_LENGTH)]
    ring = _Kind(model, lambda: Cache.for_model(config, max_size=_MAX_SIZE, keep=_KEEP), off)
    if fault := ring.fault(text, tree, path, tolerance):
        found["rotating"] = fault
    if config.head_dim and config.head_dim % min(GROUP_SIZES) == 0:
        packing = Quantization.for_head_dim(8, config.head_dim)
        packed = _Kind(model, lambda: Cache.for_model(config, quantization=packing), off)
        if fault := packed.fault(text, tree, path, tolerance):
            found["quantised"] = fault
    return found


class _Kind:
    """One kind of cache."""

    def __init__(self, model: AdaptedModel, make_cache: MakeCache, off: Off) -> None:
        self._model = model
        self._make_cache = make_cache
        self._off = off

    def fault(
        self, text: Sequence[int], tree: DraftTree, path: Sequence[int], tolerance: float
    ) -> str:
        """Return what is wrong with a draft, or with a text read in one forward, or ""."""
        try:
            by_tokens, at_once = self._read([[token] for token in text]), self._read([text])
            tolerance = max(tolerance, self._noise(by_tokens, text))
            whole = self._off(at_once.next_logits(), by_tokens.next_logits())
            # A model with windows may see more in a text read in one forward, over mlx-lm's caches
            # too.
            if not any(self._model.config.row_windows) and not whole <= tolerance:
                return f"a text in one piece is {whole:.1e} off, {tolerance:.1e} is allowed"
            got, tokens = by_tokens.tree_logits(tree), values(tree.tokens)
            mx.eval(got)  # before the next forward, as in an examination of the full cache
            for node in path:
                by_tokens.observe([tokens[node]])
                error = self._off(got[node], by_tokens.next_logits())
                if not error <= tolerance:  # also catches NaN
                    return f"a draft is {error:.1e} off, {tolerance:.1e} is allowed"
        except Exception as error:  # third-party code, over caches that it does not know
            return f"{type(error).__name__}: {str(error)[:200]}"
        return ""

    def _read(self, pieces: Sequence[Sequence[int]]) -> Decoder:
        decoder = Decoder(self._model, self._make_cache())
        for piece in pieces:
            decoder.observe(piece)
        return decoder

    def _noise(self, decoder: Decoder, text: Sequence[int]) -> float:
        """Return the error that a number between two codes can cause in a packed cache.

        It is smaller than the error of packing all numbers.
        """
        if decoder.cache.quantization is None:
            return 0.0
        plain = Decoder(self._model, Cache.for_model(self._model.config))
        plain.observe(text)
        return self._off(decoder.next_logits(), plain.next_logits())


def relative_error(got: mx.array, want: mx.array) -> float:
    """Return the largest difference, relative to the largest number of `want`."""
    got, want = got.astype(mx.float32), want.astype(mx.float32)
    error: float = values(mx.abs(got - want).max() / mx.abs(want).max())
    return error
