"""How the drafts of one reply are verified: a chain of node processors, then one verification.

A node processor gets the logits after each node of a draft tree, with the tree, and returns others:
the caller's processors, bias and penalties, the grammar. What a reply has of these is chosen when
it begins. A sampler of the caller decides alone; else the rule does that fits the draft.
"""

from collections.abc import Callable, Sequence
from functools import partial

import mlx.core as mx

from mlxspec.device import backend
from mlxspec.device.backend import sync
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.tree import DraftTree
from mlxspec.grammar.constraint import Constraint, masked
from mlxspec.params import GenerationParams
from mlxspec.reply.pending import DeviceRound, HostRound, PendingRound
from mlxspec.verify.distribution import NodeDistributions, TokenCounts, adjust
from mlxspec.verify.noise import Noise
from mlxspec.verify.processors import choose, process
from mlxspec.verify.rules import is_matched, match_rule, verify

NodeProcessor = Callable[[mx.array, DraftTree], mx.array]
"""Returns (n_nodes, V) logits, given those before it and the tree below the last token."""


class Verification:
    """Verifies the drafts of one reply."""

    def __init__(self, params: GenerationParams, text: Sequence[int], vocab_size: int) -> None:
        """Begin a reply; `text` is the prompt now, and will be prompt and reply."""
        sampling, processors = params.sampling, params.logits_processors
        self._params, self._vocab_size = params, vocab_size
        self._counts = TokenCounts.of(list(text), vocab_size) if sampling.has_penalties else None
        self._chain: list[NodeProcessor] = []
        if processors:
            self._chain.append(lambda logits, tree: process(processors, logits, tree, text))
        if sampling.logit_bias or sampling.has_penalties:
            self._chain.append(self._adjusted)
        # The host draws by itself, so it cannot ask a sampler.
        self._is_for_host = backend.verifies_on_host() and params.sampler is None
        # Host and device round otherwise, so an exact reply is verified by one of them alone.
        stays_on_host = params.exact and self._is_for_host
        draws_from_text = processors or params.sampler or sampling.has_penalties
        self._reads_text = bool(draws_from_text or stays_on_host)
        self._constraint: Constraint | None = None

    @property
    def reads_text(self) -> bool:
        """Whether a round needs the tokens of all earlier ones, not those of all but the last.

        A node processor, the sampler or an exact host may need them, or a token that is forced.
        """
        is_free = self._constraint is None or self._constraint.is_free_for(1)
        return self._reads_text or not is_free

    def constrain(self, constraint: Constraint) -> None:
        """Apply a grammar or a limit of reasoning; call it before the first round."""
        self._chain.append(partial(_masked, constraint))
        self._constraint = constraint

    def add(self, tokens: list[int]) -> None:
        """Count the tokens of a round for the penalties."""
        if self._counts:
            self._counts = self._counts.add(tokens)

    def verify(
        self, draft: Draft, safe: Draft, logits: mx.array, noise: Noise, num_top_tokens: int
    ) -> PendingRound:
        """Verify a draft; everything is lazy.

        `safe` is the draft as the target computed it. The (n_nodes, V) logits are the target's
        after each node, and `noise` is at the position after the root.
        """
        tree, params, adjusted = safe.tree, self._params, None
        for processor in self._chain:
            adjusted = processor(logits if adjusted is None else adjusted, tree)
        distributions = NodeDistributions(params.sampling, logits, adjusted)
        # If the next round may start before this one is read, the device must have its token.
        is_ahead = tree.n_nodes == 1 and not self.reads_text
        is_matching = is_matched(safe, params.sampling, params.rule)
        if self._is_for_host and not is_ahead and is_matching:
            is_greedy = params.sampling.is_greedy
            levels = None if is_greedy else noise.gumbel(tree.num_levels, self._vocab_size)
            return HostRound(draft, distributions, tree, levels, num_top_tokens)
        if params.sampler is not None:
            verdict = match_rule(tree, choose(params.sampler, distributions.logprobs))
        else:
            verdict = verify(safe, distributions, noise, params.rule)
        return DeviceRound.of(
            draft,
            tree,
            verdict,
            distributions,
            num_top_tokens,
            keeps_distributions=params.on_logits is not None,
        )

    def _adjusted(self, logits: mx.array, tree: DraftTree) -> mx.array:
        counts = self._counts.along(tree) if self._counts else None
        return adjust(self._params.sampling, logits, counts)


def _masked(constraint: Constraint, logits: mx.array, tree: DraftTree) -> mx.array:
    """Apply a constraint to logits; the host finds the masks while the device computes."""
    if constraint.is_free_for(tree.n_nodes - 1):
        return logits
    if tree.n_nodes > 1:  # without draft nodes there is no lazy tree to compute
        sync(tree.tokens, tree.parents)
    mx.async_eval(logits)
    return masked(constraint, logits, *tree.lists())
