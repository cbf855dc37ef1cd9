"""Logits of a part of the vocabulary, spread over the target's whole vocabulary."""

import mlx.core as mx


def spread(logits: mx.array, target_ids: mx.array | None, width: int) -> mx.array:
    """Return (n, width) float32 logits of the target's tokens; -inf where the drafter has none.

    `logits` are (n, V'), and `target_ids` the (V',) int32 target token of each; None where they are
    equal except for padding.
    """
    logits = logits.astype(mx.float32)
    if target_ids is not None:
        whole = mx.full((logits.shape[0], width), -mx.inf)
        whole[:, target_ids] = logits
        return whole
    missing = width - logits.shape[-1]
    if missing <= 0:
        return logits[:, :width]
    return mx.pad(logits, [(0, 0), (0, missing)], constant_values=-mx.inf)
