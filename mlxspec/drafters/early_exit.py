"""The early-exit drafter: the target's own lower layers draft, through a small trained exit.

A draft token runs through the first `layer` layers of the target. The exit, a few residual blocks,
maps the state that enters the next layer to the input of the target's output head, which gives the
next token. The keys and values of those layers are the target's own, so verification continues
from the next layer and a draft token costs the lower layers once (LayerSkip, Elhoushi et al. 2024,
https://arxiv.org/abs/2404.16710). The chain ends where the exit's largest probability is below a
threshold (Kangaroo, Liu et al. 2024, https://arxiv.org/abs/2404.18911).
"""

from collections.abc import Collection, Sequence
from copy import copy

import mlx.core as mx
from mlx import nn

from mlxspec.decoder.decoder import Decoder
from mlxspec.device.backend import sync, values
from mlxspec.device.exponential import exp, silu
from mlxspec.device.products import Linear
from mlxspec.drafters.network import Config, HeadNetwork
from mlxspec.drafters.search.drawing import DrawingDrafter
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.tree import DraftTree
from mlxspec.errors import UnsupportedOperationError
from mlxspec.models import TargetConfig
from mlxspec.models.fields import Fields
from mlxspec.params import check_threshold
from mlxspec.verify.distribution import NodeDistributions

DEFAULT_LOOKAHEAD = 4
DEFAULT_THRESHOLD = 0.6
"""With the exit in the middle, a draft token costs half a forward and can save a whole one."""


class ExitBlock(nn.Module):
    """A residual SwiGLU block: x + down(silu(gate(norm(x))) * up(norm(x)))."""

    def __init__(self, D: int, inner: int, eps: float) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(D, eps=eps)
        self.gate_proj = Linear(D, inner, bias=False)
        self.up_proj = Linear(D, inner, bias=False)
        self.down_proj = Linear(inner, D, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        normed = self.norm(x)
        output: mx.array = x + self.down_proj(silu(self.gate_proj(normed)) * self.up_proj(normed))
        return output


class ExitHead(HeadNetwork):
    """The exit: it maps a layer's input to the input of the target's output head.

    A linear layer approximates the last layer's output from a state in the middle (the tuned lens,
    Belrose et al. 2023, https://arxiv.org/abs/2303.08112). A few residual blocks like the target's,
    but without attention, improve it. Each token is computed alone, so an exit has no cache to roll
    back.

        state entering a layer --> norm, fc --> block --> ... --> norm --> the target's head
    """

    def __init__(
        self, config: Config, target_ids: mx.array | None = None, optional: Collection[str] = ()
    ) -> None:
        """Build an exit with random weights.

        The layers below `layer` of the config draft: the exit reads the state that enters it.
        """
        super().__init__(config, target_ids)
        D, eps = config["hidden_size"], config.get("rms_norm_eps", 1e-5)
        blocks = range(config.get("num_blocks", 1))
        self.layer: int = config["layer"]
        self.threshold: float = config.get("threshold", DEFAULT_THRESHOLD)
        self.input_norm = nn.RMSNorm(D, eps=eps)
        self.fc = Linear(D, D)
        self.blocks = [ExitBlock(D, config["intermediate_size"], eps) for _ in blocks]
        self.norm = nn.RMSNorm(D, eps=eps)

    @classmethod
    def check(cls, fields: Fields, target: TargetConfig) -> None:
        """Refuse an exit without blocks or a threshold, and a layer that is not one to stop at."""
        fields.integer("intermediate_size")
        fields.integer("num_blocks", 1)
        if fields.number("threshold", DEFAULT_THRESHOLD) > 1:
            raise fields.refusal("threshold", "more than 0 and at most 1")
        layer, last = fields.integer("layer"), target.num_hidden_layers - 1
        if layer > last:
            raise fields.refusal("layer", f"1 to {last}: a layer to stop at")

    def __call__(self, state: mx.array) -> mx.array:
        """Return the head's input (..., D) for states (..., D) that enter the layer."""
        x = self.fc(self.input_norm(state))
        for block in self.blocks:
            x = block(x)
        normed: mx.array = self.norm(x)
        return normed


class EarlyExitDrafter(DrawingDrafter):
    """Drafts a chain with the lower layers of the target.

    At temperature 0, or where `samples` is False, the chain is the exit's greedy text. Otherwise it
    is drawn from the exit's distribution q under the target's sampling params, and the draft states
    q. The decision to stop must not depend on the token that was drawn: dropping a token because of
    its own probability would change the output distribution.

    Drafting leaves rows staged in the target; its next forward continues or drops them.
    """

    name = "exit"
    stages_in_target = True

    def __init__(
        self,
        head: ExitHead,
        target: Decoder,
        *,
        threshold: float | None = None,
        lookahead: int = DEFAULT_LOOKAHEAD,
        samples: bool = True,
    ) -> None:
        """Make a drafter for `target`, the decoder with which the engine verifies.

        Drafting stops when the exit's largest probability is below `threshold`, in (0, 1]; None
        takes the one in the exit's config. Raises UnsupportedOperationError if the target cannot
        continue a forward at a layer.
        """
        super().__init__(target.vocab_size, lookahead, samples)
        # Where only chains are verified, rows are computed as a text, from layer 0 on. An exact
        # reply is verified so too, but only that reply.
        if target.model.draft_support != "tree":
            raise UnsupportedOperationError(
                "an early exit needs a target that verifies draft trees; this one does not: choose "
                "the drafter 'pool', which needs nothing of the target"
            )
        state = mx.zeros((1, target.model.config.hidden_size))
        target.model.norm(state)  # raises where layers run as a whole only
        self.decoder, self.head = target, head
        self.threshold = head.threshold if threshold is None else threshold
        check_threshold(self.threshold)
        ids = head.target_ids
        self._rows = target.model.logits if ids is None else target.model.head_rows(ids)

    def fresh_for(self, target: Decoder) -> "EarlyExitDrafter":
        fresh = copy(self)  # the exit is shared
        fresh.decoder = target
        return fresh

    def propose(self, root: int, budget: int) -> Draft:
        """Draft a chain; wait for the device once per token, to decide whether to continue."""
        self.decoder.commit([])  # a draft that was never verified may have left staged rows
        tokens, probs, drawn_from = [root], [], []
        for _ in range(min(budget, self.depth)):
            q, token, prob, confidence = self._next(tokens)
            sync(token, prob, confidence)
            if values(confidence)[0] < self.threshold:
                break
            tokens.append(values(token)[0])
            probs.append(prob)
            if self.is_random:
                drawn_from.append(q.probs)
        if not probs:
            return Draft.empty(root)
        return Draft(
            tree=DraftTree.from_lists(tokens, range(-1, len(probs))),
            sources=(self.name,) * len(probs),
            node_probs=mx.concatenate(probs),
            sampled_from=mx.concatenate(drawn_from) if drawn_from else None,
        )

    def _next(
        self, tokens: Sequence[int]
    ) -> tuple[NodeDistributions, mx.array, mx.array, mx.array]:
        """Run the last token through the lower layers, as the others were, and draw the next.

        Returns q, and three (1,) arrays: the token; its probability in q, or at temperature 0 that
        at temperature 1; and the exit's largest probability at temperature 1, before any filter.
        """
        state = self.decoder.extend_lower(tokens[-1], self.head.layer)
        logits = self._rows(self.head(state)).astype(mx.float32)
        best = logits.max(axis=-1)
        confidence = 1 / exp(logits - best).sum(axis=-1)
        chain = DraftTree.chain(mx.array(list(tokens), mx.int32))
        q = self.q_after(logits, chain, self.head.target_ids)
        token = self.draw(q, depth=len(tokens))
        if not self.sampling.is_greedy:
            return q, token, q.probs[:, token][0], confidence
        return q, token, exp(q.logits[:, token][0] - best) * confidence, confidence
