"""The settings of one reply: plain numbers, checked, that can be read and changed without MLX."""

from dataclasses import dataclass, field
from typing import Literal

from mlxspec.law import Law

ChainRule = Literal["block", "token"]
"""How a chain sampled from a draft model is verified: as a block, or token by token."""

DEFAULT_NUM_DRAFT_TOKENS = 31
"""With the root 32 rows, the widest that kernels handle as one block; of these the budget takes
what pays, all of them only where long passages are copied."""


@dataclass(frozen=True)
class GenerationParams:
    """Settings of one reply. None but `law`, `seed` and the ends can change what is said.

    Attributes:
        max_tokens: Tokens to emit at most; exact.
        law: The target's law.
        seed: Seed of the random key; the same seed, drafter and settings give the same text.
        stop: Strings that end the reply and are left out of it.
        num_draft_tokens: Draft nodes per round at most; 0 decodes plainly.
        chain_rule: Rule that verifies chains sampled from a draft model.
        ignore_eos: Go on after the model's stop tokens.
    """

    max_tokens: int = 512
    law: Law = field(default_factory=Law)
    seed: int = 0
    stop: tuple[str, ...] = ()
    num_draft_tokens: int = DEFAULT_NUM_DRAFT_TOKENS
    chain_rule: ChainRule = "block"
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be 1 or more; got {self.max_tokens}")
        if self.num_draft_tokens < 0:
            raise ValueError(
                f"num_draft_tokens must be 0 (plain decoding) or more; got {self.num_draft_tokens}"
            )
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"seed must be between 0 and 2**64 - 1; got {self.seed}")
