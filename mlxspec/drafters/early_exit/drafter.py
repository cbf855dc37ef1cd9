"""The early-exit drafter: the target's own lower layers draft, through a small trained exit.

A draft token runs through the first `layer` layers of the target. The exit, a few residual blocks,
maps the state that enters the next layer to the input of the target's output head, which gives the
next token. The keys and values of those layers are the target's own, so verification continues
from the next layer and a draft token costs the lower layers once (LayerSkip, Elhoushi et al. 2024,
https://arxiv.org/abs/2404.16710). The chain ends where the exit's largest probability is below a
threshold (Kangaroo, Liu et al. 2024, https://arxiv.org/abs/2404.18911).
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

import mlx.core as mx

from mlxspec.decoder.decoder import Decoder
from mlxspec.device.backend import sync, values
from mlxspec.device.ops import exp
from mlxspec.drafters.base import Drafter
from mlxspec.drafters.early_exit.network import ExitHead
from mlxspec.drafters.search.draft_distribution import DraftDistribution
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.drafts.tree import DraftTree
from mlxspec.errors import UnsupportedOperationError
from mlxspec.params import SamplingParams, check_threshold
from mlxspec.verify.distribution import NodeDistributions
from mlxspec.verify.noise import Noise

__all__ = ["DEFAULT_LOOKAHEAD", "EarlyExitDrafter", "ExitHead"]

DEFAULT_LOOKAHEAD = 4


@dataclass(frozen=True)
class _Step:
    """The exit's prediction after one token; lazy.

    Attributes:
        distributions: The distribution q, one row.
        token: (1,) int32 draw from q.
        prob: (1,) its probability; at temperature 0 the probability at temperature 1.
        confidence: (1,) largest probability of the exit at temperature 1, before any filter.
    """

    distributions: NodeDistributions
    token: mx.array
    prob: mx.array
    confidence: mx.array


class EarlyExitDrafter(Drafter):
    """Drafts a chain with the lower layers of the target.

    At temperature 0, or where `samples` is False, the chain is the exit's greedy text. Otherwise it
    is drawn from the exit's distribution q under the target's sampling params, and the draft states
    q. The decision to stop must not depend on the token that was drawn: dropping a token because of
    its own probability would change the output distribution.

    Attributes:
        decoder: The target. Drafting leaves rows staged there; its next forward continues or
            drops them.
        threshold: Drafting stops when the exit's largest probability is below it.
        lookahead: Length of the longest chain.
        limits: A depth replaces `lookahead`.
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

        `threshold` is in (0, 1]; None takes the one in the exit's config.

        Raises:
            ValueError: A number is out of range, or the exit does not fit the target.
            UnsupportedOperationError: The target cannot continue a forward at a layer.
        """
        if lookahead < 1:
            raise ValueError(f"lookahead must be 1 or more; got {lookahead}")
        _check_fits(target, head)
        self.decoder, self.head = target, head
        self.lookahead, self.samples = lookahead, samples
        self.threshold = head.config.threshold if threshold is None else threshold
        check_threshold(self.threshold)
        ids = head.target_ids
        self._shared: Noise | None = None
        self._rows = target.model.logits if ids is None else target.model.head_rows(ids)

    def fresh_for(self, target: Decoder) -> "EarlyExitDrafter":
        fresh = copy(self)  # the exit is shared
        fresh.decoder = target
        return fresh

    def couple(self, noise: Noise | None) -> None:
        self._shared = noise

    def start(self, prompt: Sequence[int], sampling: SamplingParams, key: mx.array) -> None:
        sampling = sampling if self.samples else replace(sampling, temperature=0.0)
        self._distribution = DraftDistribution(
            sampling, key, prompt, self.decoder.vocab_size, self._shared
        )

    def propose(self, root: int, budget: int) -> Draft:
        """Draft a chain; wait for the device once per token, to decide whether to continue."""
        self.decoder.commit([])  # a draft that was never verified may have left staged rows
        tokens, steps = [root], list[_Step]()
        for _ in range(min(budget, self.limits.depth or self.lookahead)):
            step = self._step(tokens)
            sync(step.token, step.prob, step.confidence)
            if values(step.confidence)[0] < self.threshold:
                break
            tokens.append(values(step.token)[0])
            steps.append(step)
        return self._draft(tokens, steps)

    def update(self, round: Round) -> None:
        self._distribution.count([*round.accepted, round.bonus_token])

    def _step(self, tokens: Sequence[int]) -> _Step:
        """Run the last token through the lower layers, as the others were, and draw the next."""
        state = self.decoder.extend_lower(tokens[-1], self.head.config.layer)
        logits = self._rows(self.head(state)).astype(mx.float32)
        best = logits.max(axis=-1)
        mass = exp(logits - best).sum(axis=-1)  # 1 / the largest probability
        chain = DraftTree.chain(mx.array(list(tokens), mx.int32))
        distributions = self._distribution.after(logits, chain, self.head.target_ids)
        token = self._distribution.draw(distributions, depth=len(tokens))
        if self._distribution.sampling.is_greedy:
            prob = exp(distributions.logits[:, token][0] - best) / mass
        else:
            prob = distributions.probs[:, token][0]
        return _Step(distributions, token, prob, 1 / mass)

    def _draft(self, tokens: Sequence[int], steps: Sequence[_Step]) -> Draft:
        if not steps:
            return Draft.empty(tokens[0])
        return Draft(
            tree=DraftTree.from_lists(tokens, range(-1, len(steps))),
            sources=(self.name,) * len(steps),
            node_probs=mx.concatenate([step.prob for step in steps]),
            sampled_from=self._sampled_from(steps),
        )

    def _sampled_from(self, steps: Sequence[_Step]) -> mx.array | None:
        return (
            mx.concatenate([s.distributions.probs for s in steps])
            if self._distribution.is_random
            else None
        )


def _check_fits(decoder: Decoder, head: ExitHead) -> None:
    config, target = head.config, decoder.model.config
    if decoder.draft_support != "tree":  # their rows are computed as a text, from layer 0 on
        raise UnsupportedOperationError(
            "an early exit needs a target that verifies draft trees; this one does not: choose "
            "the drafter 'pool', which needs nothing of the target"
        )
    if config.hidden_size != target.hidden_size:
        raise ValueError(
            f"the exit has hidden size {config.hidden_size}; that of the target is "
            f"{target.hidden_size}: choose the exit that was trained for this target"
        )
    if config.layer >= target.num_hidden_layers:
        raise ValueError(
            f"the exit needs the state entering layer {config.layer}; the last layer of this "
            f"target is {target.num_hidden_layers - 1}: choose the exit that was trained for it"
        )
    decoder.model.norm(mx.zeros((1, target.hidden_size)))  # raises where layers run as a whole only
    last: int = -1 if head.target_ids is None else values(head.target_ids.max())
    if last >= target.vocab_size:  # MLX would read outside the array
        raise ValueError(
            f"the exit has token {last}; the target's vocabulary ends at "
            f"{target.vocab_size - 1}: choose the exit that was trained for it"
        )
