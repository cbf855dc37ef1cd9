"""The settings of one reply: plain numbers, checked, that can be read and changed without MLX."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from mlxspec.params.checks import (
    choice,
    flag,
    function,
    functions,
    instance,
    refusal,
    settle,
    texts,
    token_ids,
    whole,
)
from mlxspec.params.sampling import Law

ChainRule = Literal["block", "token"]
"""How a chain sampled from a draft model is verified: as a block, or token by token."""

CHAIN_RULES: tuple[ChainRule, ...] = get_args(ChainRule)

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
        max_tokens: Tokens to emit at most; exact. With 0 the reply is empty, and nothing is read.
        law: The target's law.
        seed: Seed of all chance. Drafts that are a function of the past, those of "suffix",
            "table", "pool" and "medusa", leave the text of plain sampling with this seed; drafters
            that draw at random give another text of the same law, not the same in every run if
            the clock decides how much they draft, unless `exact_seed` is set.
        stop: Strings that end the reply and are left out of it; one alone may be given as it is.
        stop_tokens: Ids of tokens that end the reply beside the model's own; the one that does is
            its last token, and its text stays.
        num_draft_tokens: Draft nodes per round at most; 0 decodes plainly.
        chain_rule: Rule that verifies chains drawn at random, "block" or "token"; trees so drawn
            have one of their own. None for the engine's.
        exact_seed: Leave the text of plain sampling with this seed whatever drafts: drafters that
            draw do so with the noise that the target's tokens are drawn with, and their drafts are
            matched (Daliri et al. 2024, https://arxiv.org/abs/2408.07978). Some fewer tokens are
            accepted. At temperature 0 it makes no difference.
        ignore_eos: Go on after the model's own stop tokens.
        logits_processors: Change the logits, one after the other, before the law does.
        sampler: Draws in place of the law's temperature and filters. Drafts are matched with what
            it draws after each node.
        prefill_step_size: Prompt tokens per forward at most; None, like more than 512, reads 512.
        on_logits: Told after every round the emitted tokens and (n, V) float32 the logits that each
            was drawn by, processors, bias and penalties applied; they are lazy.

    Raises:
        ValueError: A value is of the wrong type or out of range.
    """

    max_tokens: int = 512
    law: Law = field(default_factory=Law)
    seed: int = 0
    stop: str | Sequence[str] = ()
    stop_tokens: Sequence[int] = ()
    num_draft_tokens: int = DEFAULT_NUM_DRAFT_TOKENS
    chain_rule: ChainRule | None = None
    exact_seed: bool = False
    ignore_eos: bool = False
    logits_processors: Sequence[LogitsProcessor] = ()
    sampler: Sampler | None = None
    prefill_step_size: int | None = None
    on_logits: Callable[[Sequence[int], Any], None] | None = None

    def __post_init__(self) -> None:
        instance("law", self.law, Law)
        if self.chain_rule is not None:
            choice("chain_rule", self.chain_rule, CHAIN_RULES)
        most = 2**64 - 1
        settle(
            self,
            max_tokens=whole("max_tokens", self.max_tokens),
            seed=whole("seed", self.seed, "between 0 and 2**64 - 1", most=most),
            stop=texts("stop", self.stop),
            stop_tokens=tuple(token_ids("stop_tokens", self.stop_tokens)),
            num_draft_tokens=whole(
                "num_draft_tokens", self.num_draft_tokens, "0 (plain decoding) or more"
            ),
            exact_seed=flag("exact_seed", self.exact_seed),
            ignore_eos=flag("ignore_eos", self.ignore_eos),
            logits_processors=functions("logits_processors", self.logits_processors),
        )
        for name in ("sampler", "on_logits"):
            if getattr(self, name) is not None:
                function(name, getattr(self, name))
        if self.prefill_step_size is not None:
            size = whole("prefill_step_size", self.prefill_step_size, "1 or more", least=1)
            settle(self, prefill_step_size=size)

    @property
    def is_greedy(self) -> bool:
        """Whether the most probable token is taken everywhere."""
        return self.law.is_greedy and self.sampler is None

    @property
    def rule(self) -> Rule:
        """The rule for drafts that were drawn at random."""
        return "match" if self.exact_seed else self.chain_rule or "block"


def check_params(
    params: GenerationParams | None,
    vocab_size: int,
    chain_rule: ChainRule = "block",
    name: str = "params",
) -> GenerationParams:
    """Return the settings of a reply, whole and fit for a model.

    Args:
        params: What was asked for; None for the usual ones.
        vocab_size: Tokens that the model knows.
        chain_rule: The rule where none was asked for.
        name: What to call them.

    Raises:
        ValueError: They are no settings, or name a token outside the vocabulary.
    """
    params = instance(name, GenerationParams() if params is None else params, GenerationParams)
    for field_name, tokens in (
        ("stop_tokens", params.stop_tokens),
        ("logit_bias", params.law.logit_bias),
        ("xtc_special_tokens", params.law.xtc_special_tokens),
    ):
        for token in tokens:
            if not 0 <= token < vocab_size:
                allowed = f"token ids from 0 to {vocab_size - 1}"
                raise refusal(field_name, allowed, token)
    return replace(params, chain_rule=params.chain_rule or chain_rule)
