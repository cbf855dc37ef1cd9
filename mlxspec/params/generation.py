"""The settings of one reply: plain numbers, checked, that can be read and changed without MLX."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from mlxspec.params.checks import function, functions, instance, refusal, texts, token_ids
from mlxspec.params.sampling import SamplingParams
from mlxspec.params.setting import (
    SWITCH,
    Door,
    Range,
    check_fields,
    one_of,
    setting,
    whole_number,
)

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

_FUNCTIONS: dict[Door, str] = dict.fromkeys(get_args(Door), "only Python can give a function")
_FOR_PROGRAMS: dict[Door, str] = dict.fromkeys(get_args(Door), "it is for measurements")
_OF_A_TASK: dict[Door, str] = dict.fromkeys(
    ("word", "file"), "where a reply ends belongs to the task of a script, not to a chat"
)


@dataclass(frozen=True)
class GenerationParams:
    """Settings of one reply.

    None changes the law of what is said but `sampling`, `logits_processors`, `sampler` and the
    ends.

    Attributes:
        max_tokens: Tokens to emit at most; exact. With 0 the reply is empty, and nothing is read.
        sampling: How the target's tokens are drawn.
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

    max_tokens: int = setting(
        512,
        whole_number(),
        "tokens of a reply at most",
        flag="--max-tokens",
        word="max",
        file="sampling.max_tokens",
        noun="COUNT",
    )
    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int = setting(
        0,
        whole_number("between 0 and 2**64 - 1", most=2**64 - 1),
        "seed of sampling",
        flag="--seed",
        word="seed",
        noun="NUMBER",
        unset="left out, drawn at random",
        absent={"file": "with one seed for good, no reply could be written anew"},
    )
    stop: str | Sequence[str] = setting(
        (),
        Range(str, "a text, or several", texts),
        "a text that ends the reply and is left out of it; may repeat",
        flag="--stop",
        noun="TEXT",
        repeats=True,
        absent=_OF_A_TASK,
    )
    stop_tokens: Sequence[int] = setting(
        (),
        Range(int, "token ids", lambda name, value: tuple(token_ids(name, value))),
        "a token that ends the reply, by its id; may repeat",
        flag="--stop-token",
        noun="ID",
        repeats=True,
        absent=_OF_A_TASK,
    )
    num_draft_tokens: int = setting(
        DEFAULT_NUM_DRAFT_TOKENS,
        whole_number("0 (plain decoding) or more"),
        "drafted tokens per round at most; 0 decodes plainly",
        flag="--num-draft-tokens",
        word="k",
        noun="COUNT",
        absent={"file": "what pays depends on the model, and the budget measures it"},
    )
    chain_rule: ChainRule | None = setting(
        None,
        one_of(CHAIN_RULES),
        "how chains drawn at random are verified in this reply",
        absent=dict.fromkeys(get_args(Door), "the one that `load` takes is for every reply"),
    )
    exact_seed: bool = setting(
        False,
        SWITCH,
        "the text of plain sampling with this seed, whatever drafts; accepts a little less",
        flag="--exact-seed",
        word="exact_seed",
        noun="SWITCH",
        absent={"file": "it is for one text to be had again"},
    )
    ignore_eos: bool = setting(
        False, SWITCH, "go on after the model's own stop tokens", absent=_FOR_PROGRAMS
    )
    logits_processors: Sequence[LogitsProcessor] = setting(
        (),
        Range(None, "functions in a list or tuple", functions),
        "functions that change the logits",
        absent=_FUNCTIONS,
    )
    sampler: Sampler | None = setting(
        None,
        Range(None, "a function", function),
        "a function that draws in place of temperature and filters",
        absent=_FUNCTIONS,
    )
    prefill_step_size: int | None = setting(
        None,
        whole_number("1 or more", least=1),
        "prompt tokens per forward at most, and never more than 512",
        absent=_FOR_PROGRAMS,
    )
    on_logits: Callable[[Sequence[int], Any], None] | None = setting(
        None,
        Range(None, "a function", function),
        "a function that is told the logits of every token",
        absent=_FUNCTIONS,
    )

    def __post_init__(self) -> None:
        instance("sampling", self.sampling, SamplingParams)
        check_fields(self)

    @property
    def is_greedy(self) -> bool:
        """Whether the most probable token is taken everywhere."""
        return self.sampling.is_greedy and self.sampler is None

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
        ("logit_bias", params.sampling.logit_bias),
        ("xtc_special_tokens", params.sampling.xtc_special_tokens),
    ):
        for token in tokens:
            if not 0 <= token < vocab_size:
                allowed = f"token ids from 0 to {vocab_size - 1}"
                raise refusal(field_name, allowed, token)
    return replace(params, chain_rule=params.chain_rule or chain_rule)
