"""The settings of one reply: plain values, checked, that need no MLX."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from mlxspec.params.checks import (
    function,
    functions,
    instance,
    refusal,
    text,
    texts,
    token_ids,
)
from mlxspec.params.grammar import Grammar, grammar_of
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
from mlxspec.params.template_args import ALLOWED, template_args

ChainRule = Literal["block", "token"]
"""The rule that verifies a sampled chain: as a whole (block), or token by token."""

CHAIN_RULES: tuple[ChainRule, ...] = get_args(ChainRule)

Rule = ChainRule | Literal["match"]
"""The rule for a sampled draft; "match" compares it with the tokens that plain sampling draws."""

LogitsProcessor = Callable[[Any, Any], Any]
"""`f(tokens, logits)` gets (n,) int32, the tokens so far, and (1, V) float32 logits; it returns new
logits of that shape. It is called for every draft node with that node's own text, so it must depend
on these two alone: a state of its own would count draft tokens that are never emitted."""

Sampler = Callable[[Any], Any]
"""`f(logprobs)` gets (1, V) float32 logprobs and returns one token. It is called for every draft
node, so it must not count its calls."""

DEFAULT_NUM_DRAFT_TOKENS = 31
"""With the root 32 rows, the most that kernels handle as one block. The budget uses as many as pay,
all of them only where the reply copies long passages."""

MAX_DRAFT_TOKENS = 255
"""With the root 256 rows, whose logits over a vocabulary of 150,000 take 0.15 GB."""

_FUNCTIONS = "only Python can give a function"
_THINKS = {"on": -1, "off": 0}
_FOR_PROGRAMS = "it is for measurements"
_OF_A_TASK: dict[Door, str] = dict.fromkeys(
    ("word", "file"), "where a reply ends belongs to the task of a script, not to a chat"
)


@dataclass(frozen=True)
class GenerationParams:
    """Settings of one reply.

    Only `sampling`, `think_tokens`, `grammar`, `logits_processors`, `sampler` and the settings that
    end the reply change the output distribution. What a field does is said where it is declared. Of
    some there is more to say:

    Attributes:
        max_tokens: Exact. With 0 the reply is empty, and no prefill runs.
        seed: Drafts that are a function of the past, those of
            "suffix", "table", "pool" and "medusa", give the text of plain sampling with this seed.
            Sampled drafts give another text of the same distribution. That text can differ from
            run to run, as measured times decide how much is drafted; `exact_seed` prevents both.
        stop_tokens: In addition to the model's own. The stop token is the last token of the reply,
            and its text stays.
        think_tokens: After this many reasoning tokens the reply goes on with the closing mark of
            the reasoning, and then its answer. The mark's tokens cost no forward of their own.
            Tokens before it are those without a limit. With 0 a chat template that has the switch
            `enable_thinking` turns reasoning off itself. A model that does not reason ignores it.
        stop_repeats: The reply ends when its last 128 tokens or more are four or more copies of one
            passage, which may differ by a word. Every token up to there has the distribution
            that it has without.
        chain_rule: Sampled trees have a rule of their own. None for the engine's rule.
        exact_seed: Sampling drafters use the noise of the target's draws, and the match rule
            verifies their drafts (Daliri et al. 2024, https://arxiv.org/abs/2408.07978). At
            temperature 0 it has no effect.
        exact: Decoding in forwards whose rows have the same bits, drafted or not, and the match
            rule. A reply then depends on its prompt and settings alone: not on the drafter, on
            what is cached, or on what runs beside it. At its first use a device is examined.
        prediction: It is drafted where the reply follows it. A wrong one costs nearly nothing.
        grammar: A JSON schema (a dict, a pydantic model or a path), or a `Grammar`. Tokens that it
            forbids have no probability; all others keep theirs in relation to each other. The reply
            ends where nothing may follow. Of a reply that begins inside its reasoning, the answer
            alone has to fit.
        logits_processors: They are called in order, before the sampling params.
        sampler: The match rule compares drafts with the token that it draws after each node.
        on_logits: Called after every round with the n emitted tokens and the (n, V) float32 logits
            that each was drawn from, after processors, bias and penalties; they are lazy.

    Raises:
        ValueError: A value is of the wrong type or out of range.
    """

    max_tokens: int = setting(
        512, whole_number(), "maximum number of tokens in a reply", word="max", noun="COUNT"
    )
    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int = setting(
        0,
        whole_number("between 0 and 2**64 - 1", most=2**64 - 1),
        "seed of sampling",
        noun="NUMBER",
        unset="defaults to a random one",
        absent={"file": "with one fixed seed, a retry would give the same reply"},
    )
    stop: str | Sequence[str] = setting(
        (),
        Range(str, "a text, or several", texts),
        "a text that ends the reply and is left out of it; may be repeated",
        noun="TEXT",
        repeats=True,
        absent=_OF_A_TASK,
    )
    stop_tokens: Sequence[int] = setting(
        (),
        Range(int, "token ids", lambda name, value: tuple(token_ids(name, value))),
        "a token that ends the reply, by its id; may be repeated",
        flag="--stop-token",
        noun="ID",
        repeats=True,
        absent=_OF_A_TASK,
    )
    think_tokens: int = setting(
        -1,
        replace(whole_number("0 or more, or -1 for no limit", least=-1), words=_THINKS),
        "maximum number of reasoning tokens in a reply; 0 for no reasoning, -1 for no limit",
        word="think",
        noun="COUNT",
    )
    stop_repeats: bool = setting(False, SWITCH, "end a reply that repeats itself without end")
    num_draft_tokens: int = setting(
        DEFAULT_NUM_DRAFT_TOKENS,
        whole_number(f"from 0 (plain decoding) to {MAX_DRAFT_TOKENS}", most=MAX_DRAFT_TOKENS),
        "maximum number of draft tokens per round; 0 for plain decoding",
        word="k",
        noun="COUNT",
        absent={"file": "what pays depends on the model, and the budget measures it"},
    )
    chain_rule: ChainRule | None = setting(
        None,
        one_of(CHAIN_RULES),
        "how sampled chains are verified in this reply",
        absent="the one that `load` takes is for every reply",
    )
    exact_seed: bool = setting(
        False,
        SWITCH,
        "the text of plain sampling with this seed, for every drafter; accepts a little less",
        noun="SWITCH",
        absent={"file": "it makes one text repeatable"},
    )
    exact: bool = setting(
        False,
        SWITCH,
        "the reply of plain decoding to the last bit, for every drafter",
        noun="SWITCH",
    )
    chat_template_args: Mapping[str, Any] = setting(
        {},
        Range(str, ALLOWED, template_args),
        "a variable of the model's chat template, such as enable_thinking=false; may be repeated",
        flag="--chat-template-arg",
        word="template",
        noun="NAME=VALUE",
        repeats=True,
    )
    prediction: str | None = setting(
        None,
        Range(None, "a text", text),
        "a text that the reply is expected to mostly repeat",
        absent={
            "flag": "`generate --prediction FILE` reads it from a file",
            "word": "a chat is not told beforehand what its replies say",
            "file": "it is of one reply",
        },
    )
    grammar: Grammar | None = setting(
        None,
        Range(str, "a JSON schema or a Grammar", grammar_of),
        "the JSON schema that a reply must fit",
        flag="--json-schema",
        word="json",
        noun="FILE",
        absent={"file": "it belongs to a task"},
    )
    ignore_eos: bool = setting(
        False, SWITCH, "continue after the model's own stop tokens", absent=_FOR_PROGRAMS
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
        "maximum number of prompt tokens per forward, never above 512",
        absent=_FOR_PROGRAMS,
    )
    on_logits: Callable[[Sequence[int], Any], None] | None = setting(
        None,
        Range(None, "a function", function),
        "a function that gets the logits of every token",
        absent=_FUNCTIONS,
    )

    def __post_init__(self) -> None:
        instance("sampling", self.sampling, SamplingParams)
        check_fields(self)

    @property
    def is_greedy(self) -> bool:
        """Whether every token is the most probable one."""
        return self.sampling.is_greedy and self.sampler is None

    @property
    def rule(self) -> Rule:
        return "match" if self.is_coupled else self.chain_rule or "block"

    @property
    def is_coupled(self) -> bool:
        """Whether drafts are drawn with the target's noise, so that its own draw decides."""
        return self.exact_seed or self.exact


def check_params(
    params: GenerationParams | None,
    vocab_size: int,
    usual: "GenerationParams",
    name: str = "params",
) -> GenerationParams:
    """Return complete settings of a reply, checked against the vocabulary of a model.

    `usual` has the rule of chains where the settings name none, and may make every reply exact;
    `name` names the settings in messages.
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
    rule, exact = params.chain_rule or usual.chain_rule, params.exact or usual.exact
    return replace(params, chain_rule=rule, exact=exact)
