"""The target's output head for a part of its vocabulary, and its logits in the whole vocabulary.

The target's output head is larger than a small drafter, so it dominates the cost of a draft. For
the ten or twenty thousand most frequent tokens it costs a fraction and misses few tokens (FR-Spec,
Zhao et al. 2025, https://arxiv.org/abs/2502.14856).
"""

import mlx.core as mx
from mlx import nn

from mlxspec.device.ops import Linear
from mlxspec.models import Model


def head_rows(model: Model, target_ids: mx.array) -> nn.Module:
    """Return the rows of a model's head for (n,) int32 token ids: it maps (..., D) to (..., n).

    Quantised rows stay quantised. The rows are a copy, evaluated here.
    """
    head = model.model.embed_tokens if model.config.tie_word_embeddings else model.lm_head
    num_rows = target_ids.shape[0]
    rows: nn.Module
    names: tuple[str, ...]
    if isinstance(head, nn.QuantizedLinear | nn.QuantizedEmbedding):
        rows = nn.QuantizedLinear(
            model.config.hidden_size, num_rows, False, head.group_size, head.bits
        )
        names = ("weight", "scales", "biases")
    else:
        rows, names = Linear(model.config.hidden_size, num_rows, bias=False), ("weight",)
    for name in names:
        if name in head:
            rows[name] = head[name][target_ids]
    mx.eval(rows.parameters())
    return rows


def spread(logits: mx.array, target_ids: mx.array | None, width: int) -> mx.array:
    """Return (n, width) float32 logits of the target's tokens; -inf where the drafter has none.

    Args:
        logits: (n, V') of a drafter.
        target_ids: (V',) int32 target token of each; None where they are equal, padding apart.
        width: Width of the target's logits.
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
