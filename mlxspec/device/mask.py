"""Which keys the rows of a forward see, in the forms that attention takes."""

import mlx.core as mx

FEW_ROWS = 64
"""Rows for which a little more may be held for each head: a mask, or scores."""


class SharedMask:
    """The mask of all layers of one kind; each form of it is made once for all of them.

    Attributes:
        mask: (L, S) or (B, 1, L, S) bool, "causal" with the last query at the last key, or None
            for no mask.
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
        """Return what is added to scores, float32: 0, and minus infinity where nothing is seen.

        Args:
            groups: Heads that stand below each other, so that they share a product with keys.
            L: Rows.
            S: Keys.

        Returns:
            (..., groups * L, S).
        """
        if self._added is None:
            rows = mx.where(self.shown(L, S), 0.0, -mx.inf)
            self._added = mx.concatenate([rows] * groups, axis=-2)
        return self._added

    def hide(self, scores: mx.array, L: int, S: int) -> mx.array:
        """Return (B, Hkv, H / Hkv * L, S) scores with minus infinity where nothing is seen."""
        B, Hkv = scores.shape[:2]
        shown = self.shown(L, S)
        if shown.ndim == 4:
            shown = shown[:, :, None]  # heads stand in groups here
        grouped = scores.reshape(B, Hkv, -1, L, S)
        return mx.where(shown, grouped, -mx.inf).reshape(scores.shape)


Mask = SharedMask | mx.array | str | None
"""What a `SharedMask` holds, or one."""
