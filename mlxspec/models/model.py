"""The model: tokens to hidden states to logits, one code path for every kind of forward.

A prompt, a single token and a draft tree differ only in their positions and masks:

                 positions                     masks
    prompt       offset                        "causal" (a bool array with a window)
    one token    offset                        None
    draft tree   (n_nodes,) offset + depth     bool: the past, the ancestors and the node itself

Hidden states and logits are two calls, because the output head is as large as many layers and only
a few rows need it: the last row of a prompt, the nodes of a tree.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from mlxspec.device import products
from mlxspec.device.attention import SharedMask
from mlxspec.device.products import Linear
from mlxspec.kv.masks import Masks
from mlxspec.models.config import ModelConfig
from mlxspec.models.layers import DecoderLayer, StagingCache
from mlxspec.models.rope import Rope
from mlxspec.models.target_model import CacheKind, DraftSupport


class Backbone(nn.Module):
    """The parameters under `model.` in a checkpoint."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.rope = rope = Rope(config.head_dim, config.rope_theta, config.rope_scaling)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = [DecoderLayer(config, rope, i) for i in range(config.num_hidden_layers)]
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)


class Model(nn.Module):
    """A Llama, Mistral or Qwen2 model; properties as in `TargetModel`."""

    draft_support: DraftSupport = "tree"
    supports_batches = True
    draft_limits = ""
    refused_caches: Mapping[CacheKind, str] = MappingProxyType({})

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.model = Backbone(config)
        if not config.tie_word_embeddings:
            self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)

    @property
    def layers(self) -> list[DecoderLayer]:
        return self.model.layers

    @property
    def dtype(self) -> mx.Dtype:
        dtype: mx.Dtype = self.model.norm.weight.dtype
        return dtype

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in dict(tree_flatten(self.parameters())).values())

    def embed(self, tokens: mx.array) -> mx.array:
        embeddings: mx.array = self.model.embed_tokens(tokens)
        return embeddings

    def hidden_states(
        self,
        tokens: mx.array,
        cache: StagingCache,
        positions: int | mx.array,
        masks: Masks,
        *,
        capture: Sequence[int] = (),
    ) -> tuple[mx.array, list[mx.array]]:
        """Run all layers over `tokens`; their keys and values are staged in `cache`.

        Args:
            tokens: (B, L) int32.
            cache: The rows before; nothing is committed here.
            positions: Position of the first of L contiguous tokens, or (L,) int32, one per node,
                or (B, L) int32 if sequences differ.
            masks: The attention mask for each distinct window in `config.layer_windows`.
            capture: Layers whose input to return; `num_hidden_layers` means the output of the
                last layer.

        Returns:
            The final norm's output (B, L, D), and the captured states (B, L, D) in the order of
            `capture`.
        """
        everything = range(self.config.num_hidden_layers)
        x = self.embed(tokens)
        x, captured = self.run_layers(x, cache, positions, masks, everything, capture=capture)
        return self.norm(x), captured

    def run_layers(
        self,
        x: mx.array,
        cache: StagingCache,
        positions: int | mx.array,
        masks: Masks,
        layers: range,
        *,
        capture: Sequence[int] = (),
    ) -> tuple[mx.array, list[mx.array]]:
        """Run consecutive layers over the (B, L, D) states that enter the first of them.

        `capture` has indices among `layers`, or the one after the last for its output. Returns the
        output of the last of these layers, before the norm, and the captured states.
        """
        if any(not layers.start <= index <= layers.stop for index in capture):
            raise ValueError(
                f"capture is {list(capture)}; allowed are {layers.start} to {layers.stop}"
            )
        captured = {layers.start: x}
        placed = self.model.rope.prepared(positions, x.shape[1])
        steady = getattr(cache, "steady", None) is not None
        shared = {window: SharedMask(mask, by_row=steady) for window, mask in masks.items()}
        for index in layers:
            x = self.layers[index](x, cache, placed, shared)
            if index + 1 in capture:  # references to the other states would keep their memory
                captured[index + 1] = x
        return x, [captured[index] for index in capture]

    def norm(self, x: mx.array) -> mx.array:
        normed: mx.array = self.model.norm(x)
        return normed

    def logits(self, hidden: mx.array) -> mx.array:
        """Return the logits (..., V) of final hidden states (..., D), in their dtype."""
        return products.product(self._head, hidden)

    def head_rows(self, token_ids: mx.array) -> nn.Module:
        """Return the rows of the head for (n,) int32 tokens, a copy: it maps (..., D) to (..., n).

        The head is larger than a small drafter, so it dominates the cost of a draft. The rows of
        the most frequent tokens cost a fraction (FR-Spec, Zhao et al. 2025,
        https://arxiv.org/abs/2502.14856). Quantised rows stay quantised.
        """
        head, num_rows, width = self._head, token_ids.shape[0], self.config.hidden_size
        rows: nn.Module
        names: tuple[str, ...]
        if isinstance(head, nn.QuantizedLinear | nn.QuantizedEmbedding):
            rows = nn.QuantizedLinear(width, num_rows, False, head.group_size, head.bits)
            names = ("weight", "scales", "biases")
        else:
            rows, names = Linear(width, num_rows, bias=False), ("weight",)
        for name in names:
            if name in head:
                rows[name] = head[name][token_ids]
        mx.eval(rows.parameters())
        return rows

    @property
    def _head(self) -> nn.Module:
        return self.model.embed_tokens if self.config.tie_word_embeddings else self.lm_head
