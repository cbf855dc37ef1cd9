"""The attention mask of a forward, in the forms that attention needs."""

import mlx.core as mx

FEW_ROWS = 64
"""Up to this number of rows, a mask or scores for each head cost little memory."""


class SharedMask:
    """The mask that all layers of one kind share; each form of it is made once.

    `mask` is (L, S) or (B, 1, L, S) bool, "causal" with the last query at the last key, or None for
    no mask.
    """

    def __init__(self, mask: mx.array | str | None) -> None:
        self.mask = mask
        self._added: mx.array | None = None

    def shown(self, L: int, S: int) -> mx.array:
        """Return the mask, which must not be None, as bools."""
        if isinstance(self.mask, str):
            self.mask = mx.arange(S - L, S)[:, None] >= mx.arange(S)
        assert self.mask is not None
        return self.mask

    def added(self, groups: int, L: int, S: int) -> mx.array:
        """Return the (..., groups * L, S) float32 mask to add to scores; -inf hides a key.

        `groups` is the number of query heads that share keys; their rows are stacked, so that they
        need one product.
        """
        if self._added is None:
            rows = mx.where(self.shown(L, S), 0.0, -mx.inf)
            self._added = mx.concatenate([rows] * groups, axis=-2)
        return self._added

    def hide(self, scores: mx.array, L: int, S: int) -> mx.array:
        """Return (B, Hkv, H / Hkv * L, S) scores with minus infinity for hidden keys."""
        B, Hkv = scores.shape[:2]
        shown = self.shown(L, S)
        if shown.ndim == 4:
            shown = shown[:, :, None]  # the axis of the heads that share keys
        grouped = scores.reshape(B, Hkv, -1, L, S)
        return mx.where(shown, grouped, -mx.inf).reshape(scores.shape)


Mask = SharedMask | mx.array | str | None
"""A `SharedMask`, or the value of its `mask`."""
