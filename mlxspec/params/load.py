"""The settings of what is loaded: plain values that need no MLX."""

from dataclasses import dataclass, replace
from os import PathLike
from typing import Literal, TypedDict, get_args

from mlxspec.params.checks import name_or_path, refusal, text, whole
from mlxspec.params.generation import CHAIN_RULES, ChainRule
from mlxspec.params.setting import (
    SWITCH,
    Range,
    Setting,
    check_fields,
    number,
    one_of,
    setting,
    when_loaded,
    whole_number,
)

DEFAULT_MODEL = "SmolLM2-135M-Instruct"
DEFAULT_LOOKAHEAD = 4
"""Tokens in the longest chain of a draft model."""
DEFAULT_KEEP = 4
"""First tokens that a rotating cache never evicts."""

DTYPES = ("auto", "float16", "bfloat16", "float32")
"""The floating-point types in which a target can compute; auto is float32 on a CPU."""


Port = Literal["auto", "own", "mlx-lm"]
"""Whose code runs a model."""
PORTS: tuple[Port, ...] = get_args(Port)

KV_BITS = (4, 8)
KV_BITS_IN_WORDS = " or ".join(map(str, KV_BITS))
"""Bits in which keys and values can be kept quantised."""

_THRESHOLD = number("more than 0 and at most 1", lambda share: 0 < share <= 1)


def check_threshold(threshold: float) -> None:
    """Raise ValueError unless the threshold of an early exit lies in (0, 1]."""
    _THRESHOLD.check("threshold", threshold)


def _check_kv_bits(name: str, value: object) -> int:
    bits = whole(name, value, KV_BITS_IN_WORDS)
    if bits not in KV_BITS:
        raise refusal(name, KV_BITS_IN_WORDS, bits)
    return bits


_NAME_OR_PATH = Range(str, "a name or a path", name_or_path)
_ONE_OR_MORE = whole_number("1 or more", least=1)

MODEL = Setting(
    "model",
    None,
    _NAME_OR_PATH,
    "folder, GGUF file or hub id",
    flag="--model",
    word="model",
    file="model",
    unset="defaults to the default model",
)
"""What `load` calls its source."""


@dataclass(frozen=True)
class DraftLimits:
    """The largest branching and depth of drafts; None leaves the choice to each drafter."""

    branching: int | None = setting(None, _ONE_OR_MORE, "most children of a node")
    depth: int | None = setting(None, _ONE_OR_MORE, "longest path")

    def __post_init__(self) -> None:
        check_fields(self)

    def describe(self) -> str:
        """Return the limits in words, "" where there are none."""
        named = {"branching": self.branching, "depth": self.depth}
        return ", ".join(f"{name} {most}" for name, most in named.items() if most is not None)


FREE = DraftLimits()


@dataclass(frozen=True)
class Options:
    """How a target is loaded, and what drafts for it: the settings of `mlxspec.load`.

    What a field does is said where it is declared. Of some there is more to say:

    Attributes:
        draft_model: It makes "model" the default drafter.
        max_kv_size: None for a cache that grows.
        kv_bits: The output distribution is that of the quantised cache, for plain decoding and for
            every drafter.
        learn: Folder in which the table stores what it learns, from which the next run with this
            target starts. Parts of the text of chats can be reconstructed from it. None stores
            nothing.
        exit_threshold: None for the threshold that is stored with the exit.
        dtype: Half precision works on a CPU but is slow. On a GPU "auto" is the dtype of the stored
            weights, or bfloat16 if float16 is too small for the model; on M1 and M2 float16 if not.
        depth: Also the length of the chain of a drafter that drafts chains, in place of
            `lookahead`.
        chain_rule: The settings of a reply may name another.
        exact: See `GenerationParams`.

    Raises:
        ValueError: A value is of the wrong type or out of range.
    """

    drafter: str | PathLike[str] = setting(
        "auto",
        _NAME_OR_PATH,
        "none, suffix, table, pool, medusa, eagle3, exit, model; or where a trained drafter lies; "
        "or several separated by commas, as one pool",
        word="draft",
        noun="WORD|FILE|FOLDER|ID|LIST",
        unset="defaults to auto: the drafter that is fastest here",
    )
    draft_model: str | PathLike[str] | None = when_loaded(
        None, _NAME_OR_PATH, "checkpoint that drafts (drafter 'model')"
    )
    lookahead: int = when_loaded(
        DEFAULT_LOOKAHEAD, _ONE_OR_MORE, "longest chain of a draft model", noun="COUNT"
    )
    max_kv_size: int | None = when_loaded(
        None,
        _ONE_OR_MORE,
        "rows of a rotating cache",
        noun="COUNT",
        unset="defaults to a full cache",
    )
    keep: int = when_loaded(
        DEFAULT_KEEP,
        whole_number(),
        "first tokens that a rotating cache never evicts",
        noun="COUNT",
    )
    kv_bits: int | None = when_loaded(
        None,
        Range(int, KV_BITS_IN_WORDS, _check_kv_bits),
        f"{KV_BITS_IN_WORDS}: quantised keys and values",
        noun="BITS",
    )
    learn: str | PathLike[str] | None = setting(
        None,
        # Outside Python the folder is fixed: users say yes or no.
        replace(_NAME_OR_PATH, kind=bool),
        "keep what the table learns from run to run, and rows of the last chats, on this disk and "
        "for you alone; your chats can be reconstructed from it (chat keeps it, and copies from "
        "its stored chats; generate does not)",
        absent={"word": "the table is chosen when a model is loaded"},
    )
    prefixes: str | PathLike[str] | None = setting(
        None,
        _NAME_OR_PATH,
        "folder for rows of texts, so that a prompt which begins with one is not read again; those "
        "texts can be reconstructed from them",
        absent="a chat keeps them with what it learns, a server with --prefixes",
    )
    exit_threshold: float | None = when_loaded(
        None,
        _THRESHOLD,
        "the drafter 'exit' goes on while its best token has this probability, more than 0 and at "
        "most 1",
        noun="X",
    )
    dtype: str = when_loaded(
        "auto",
        one_of(DTYPES),
        "in which floating-point type the model computes; auto is float32 on a CPU, and on a GPU "
        "what the weights are stored in, where that is wide enough",
    )
    port: Port = when_loaded(
        "auto",
        one_of(PORTS),
        "whose code runs the model: ours, where there is a port of its type, or mlx-lm's; auto "
        "prefers ours",
    )
    adapter: str | PathLike[str] | None = when_loaded(
        None,
        _NAME_OR_PATH,
        "folder with adapters (LoRA) for the model; mlx-lm applies them",
        noun="FOLDER",
    )
    branching: int | None = when_loaded(
        None,
        _ONE_OR_MORE,
        "maximum number of children of a draft node",
        noun="N",
        unset="defaults to what the drafter decides",
    )
    depth: int | None = when_loaded(
        None,
        _ONE_OR_MORE,
        "maximum depth of a draft",
        noun="N",
        unset="defaults to what the drafter decides",
    )
    chain_rule: ChainRule = when_loaded(
        "block",
        one_of(CHAIN_RULES),
        "how sampled chains are verified; both keep the output distribution",
    )
    exact: bool = setting(
        False,
        SWITCH,
        "every reply is that of plain decoding to the last bit",
        absent="a reply has its own setting",
    )
    hosts: str | None = setting(
        None,
        Range(str, "a number, addresses separated by commas, or a hostfile", text),
        "where the target stands, if one machine cannot hold it: a number of local processes, "
        "addresses separated by commas, or a hostfile of mlx.launch; this machine is the first",
        noun="FILE|LIST",
        absent={
            "word": "it takes effect when a model is loaded",
            "file": "a chat joins its ranks once, when it starts",
        },
    )

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def limits(self) -> DraftLimits:
        return DraftLimits(self.branching, self.depth)

    @property
    def asked(self) -> str:
        """The drafter as text; with "auto", a given draft model makes it "model"."""
        given = "model" if self.draft_model is not None else "auto"
        return given if self.drafter == "auto" else str(self.drafter)


class OptionsDict(TypedDict, total=False):
    """The fields of `Options` as keyword arguments."""

    drafter: str | PathLike[str]
    draft_model: str | PathLike[str] | None
    lookahead: int
    max_kv_size: int | None
    keep: int
    kv_bits: int | None
    learn: str | PathLike[str] | None
    prefixes: str | PathLike[str] | None
    exit_threshold: float | None
    dtype: str
    port: Port
    adapter: str | PathLike[str] | None
    branching: int | None
    depth: int | None
    chain_rule: ChainRule
    exact: bool
    hosts: str | None
