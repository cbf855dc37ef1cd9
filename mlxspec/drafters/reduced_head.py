"""A target's output head over some of its tokens: what a drafter with a smaller vocabulary needs.

A small drafter reads more bytes of a large head than of itself. Over the ten or twenty thousand
most frequent tokens the head costs a fraction and misses few (FR-Spec, Zhao et al. 2025,
https://arxiv.org/abs/2502.14856).
"""

import mlx.core as mx
from mlx import nn

from mlxspec.models import Model


def head_rows(model: Model, target_ids: mx.array) -> nn.Module:
    """Return the rows of a model's head for (n,) int32 token ids: (..., D) to (..., n) logits.

    Quantised rows stay quantised; the rows are a copy, evaluated here.
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
        rows, names = nn.Linear(model.config.hidden_size, num_rows, bias=False), ("weight",)
    for name in names:
        if name in head:
            rows[name] = head[name][target_ids]
    mx.eval(rows.parameters())
    return rows
