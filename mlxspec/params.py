"""The settings of one reply: plain numbers, checked, that can be read and changed without MLX."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mlxspec.law import Law

ChainRule = Literal["block", "token"]
"""How a chain sampled from a draft model is verified: as a block, or token by token."""

Rule = ChainRule | Literal["match"]
"""How such a chain is verified, or that it is matched with what plain sampling says."""

LogitsProcessor = Callable[[Any, Any], Any]
"""`f(tokens, logits)` of the text so far, (n,) int32, and of (1, V) float32 logits returns (1, V)
logits. It is called for every node of a draft with that node's own text, so it has to be a function
of the two alone: state kept in it would count drafts that never become text."""

Sampler = Callable[[Any], Any]
"""`f(logprobs)` of (1, V) float32 log-probabilities returns one token. It is called for every node
of a draft, so it must not count its calls."""

DEFAULT_NUM_DRAFT_TOKENS = 31
"""With the root 32 rows, the widest that kernels handle as one block; of these the budget takes
what pays, all of them only where long passages are copied."""


@dataclass(frozen=True)
class GenerationParams:
    """Settings of one reply.

    None changes the law of what is said but `law`, `logits_processors`, `sampler` and the ends.

    Attributes:
        max_tokens: Tokens to emit at most; exact.
        law: The target's law.
        seed: Seed of all chance. Drafts that are a function of the past, those of "suffix",
            "table", "pool" and "medusa", leave the text of plain sampling with this seed; drafters
            that draw at random give another text of the same law, not the same in every run if
            the clock decides how much they draft, unless `exact_seed` is set.
        stop: Strings that end the reply and are left out of it.
        num_draft_tokens: Draft nodes per round at most; 0 decodes plainly.
        chain_rule: Rule that verifies chains drawn at random; trees so drawn have one of their own.
        exact_seed: Leave the text of plain sampling with this seed whatever drafts: drafters that
            draw do so with the noise that the target's tokens are drawn with, and their drafts are
            matched (Daliri et al. 2024, https://arxiv.org/abs/2408.07978). Some fewer tokens are
            accepted. At temperature 0 it makes no difference.
        ignore_eos: Go on after the model's stop tokens.
        logits_processors: Change the logits, one after the other, before the law does.
        sampler: Draws in place of the law's temperature and filters. Drafts are matched with what
            it draws after each node.
        prefill_step_size: Prompt tokens per forward at most; None, like more than 512, reads 512.
        on_logits: Told after every round the emitted tokens and (n, V) float32 the logits that each
            was drawn by, processors, bias and penalties applied; they are lazy.
    """

    max_tokens: int = 512
    law: Law = field(default_factory=Law)
    seed: int = 0
    stop: tuple[str, ...] = ()
    num_draft_tokens: int = DEFAULT_NUM_DRAFT_TOKENS
    chain_rule: ChainRule = "block"
    exact_seed: bool = False
    ignore_eos: bool = False
    logits_processors: tuple[LogitsProcessor, ...] = ()
    sampler: Sampler | None = None
    prefill_step_size: int | None = None
    on_logits: Callable[[Sequence[int], Any], None] | None = None

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be 1 or more; got {self.max_tokens}")
        if self.num_draft_tokens < 0:
            raise ValueError(
                f"num_draft_tokens must be 0 (plain decoding) or more; got {self.num_draft_tokens}"
            )
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"seed must be between 0 and 2**64 - 1; got {self.seed}")

        if self.prefill_step_size is not None and self.prefill_step_size < 1:
            raise ValueError(f"prefill_step_size must be 1 or more; got {self.prefill_step_size}")

    @property
    def is_greedy(self) -> bool:
        """Whether the most probable token is taken everywhere."""
        return self.law.is_greedy and self.sampler is None

    @property
    def rule(self) -> Rule:
        """The rule for drafts that were drawn at random."""
        return "match" if self.exact_seed else self.chain_rule
