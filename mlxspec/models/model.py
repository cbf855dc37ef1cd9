"""The target model: tokens to hidden states to logits, one path for every kind of pass.

A prompt, a single token and a draft tree differ only in their positions and masks:

                 positions                     masks
    prompt       offset                        "causal" (a bool array where a window is)
    one token    offset                        None
    draft tree   (n_nodes,) offset + depth     bool: the past, the ancestors and the node itself

Hidden states and logits are two calls because the head is as large as many layers and is needed
for few rows: the last of a prompt, the nodes of a tree.
"""

from collections.abc import Sequence

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map

from mlxspec.masks import Masks
from mlxspec.models.config import ModelConfig
from mlxspec.models.layers import DecoderLayer, StagingCache
from mlxspec.models.rope import Rope


class Backbone(nn.Module):
    """The parameters under `model.` in a checkpoint."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        rope = Rope(config.head_dim, config.rope_theta, config.rope_scaling)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = [DecoderLayer(config, rope, i) for i in range(config.num_hidden_layers)]
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)


class Model(nn.Module):
    """A Llama, Mistral or Qwen2 model.

    Attributes:
        config: What it was built from.
        model: Embedding, layers and final norm.
        lm_head: The head, where it is not the embedding.
    """

    def __init__(self, config: ModelConfig):
        """Build the model with random weights, which stay unevaluated until they are used."""
        super().__init__()
        self.config = config
        self.model = Backbone(config)
        if not config.tie_word_embeddings:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    @property
    def layers(self) -> list[DecoderLayer]:
        """The layers, lowest first."""
        return self.model.layers

    @property
    def nbytes(self) -> int:
        """Bytes of all parameters."""
        sizes: list[int] = []
        tree_map(lambda array: sizes.append(array.nbytes), self.parameters())
        return sum(sizes)

    def embed(self, tokens: mx.array) -> mx.array:
        """Return the embeddings (..., D) of (...) int32 tokens."""
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
            cache: What came before; not committed to here.
            positions: Position of the first of L contiguous tokens, or (L,) int32, one per node.
            masks: What a token may see, for each distinct window in `config.layer_windows`.
            capture: Layers whose input is wanted; the number of layers means the last one's
                output.

        Returns:
            The final norm's output (B, L, D), and the captured states (B, L, D) in the order of
            `capture`.

        Raises:
            ValueError: `capture` names a layer that is not there.
        """
        n_layers = self.config.num_hidden_layers
        if any(not 0 <= index <= n_layers for index in capture):
            raise ValueError(f"capture is {list(capture)}; allowed are 0 to {n_layers}")
        x = self.embed(tokens)
        captured = {0: x}
        for index, layer in enumerate(self.layers, 1):
            x = layer(x, cache, positions, masks)
            if index in capture:  # holding on to others would keep their memory
                captured[index] = x
        return self.model.norm(x), [captured[index] for index in capture]

    def logits(self, hidden: mx.array) -> mx.array:
        """Return the logits (..., V) of final hidden states (..., D), in their dtype."""
        is_tied = self.config.tie_word_embeddings
        head = self.model.embed_tokens.as_linear if is_tied else self.lm_head
        logits: mx.array = head(hidden)
        return logits
