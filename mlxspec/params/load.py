"""The settings of what is loaded: plain values that need no MLX."""

from dataclasses import dataclass, replace
from os import PathLike
from typing import Literal, TypedDict, get_args

from mlxspec.params.checks import name_or_path, real, refusal, text, whole
from mlxspec.params.generation import CHAIN_RULES, ChainRule
from mlxspec.params.setting import (
    Door,
    Range,
    Setting,
    check_fields,
    number,
    one_of,
    setting,
    whole_number,
)

DEFAULT_MODEL = "SmolLM2-135M-Instruct"
DEFAULT_LOOKAHEAD = 4
"""Tokens in the longest chain of a draft model."""
DEFAULT_KEEP = 4
"""First tokens that a rotating cache never evicts."""

DTYPES = ("auto", "float16", "bfloat16", "float32")
"""The floating-point types in which a target can compute; auto is float32 on a CPU."""


def check_dtype(dtype: str) -> None:
    """Raise ValueError unless this is the name of a floating-point type."""
    _check_dtype("dtype", dtype)


def _check_dtype(name: str, value: object) -> str:
    if text(name, value) not in DTYPES:
        raise ValueError(f"{name} {value!r} is not known; choose from {', '.join(DTYPES)}")
    return str(value)


Port = Literal["auto", "own", "mlx-lm"]
"""Whose code runs a model."""
PORTS: tuple[Port, ...] = get_args(Port)

KV_BITS = (4, 8)
"""Bits in which keys and values can be kept quantised."""


_THRESHOLD = "more than 0 and at most 1"


def _is_threshold(share: float) -> bool:
    return 0 < share <= 1


def check_threshold(threshold: float, name: str = "threshold") -> float:
    """Return the threshold of an early exit; raise ValueError unless it lies in (0, 1]."""
    return real(name, threshold, _THRESHOLD, _is_threshold)


def _check_kv_bits(name: str, value: object) -> int:
    bits = whole(name, value, "4 or 8")
    if bits not in KV_BITS:
        raise refusal(name, "4 or 8", bits)
    return bits


_NAME_OR_PATH = Range(str, "a name or a path", name_or_path)
_ONE_OR_MORE = whole_number("1 or more", least=1)
_OF_ONE_MODEL: dict[Door, str] = {
    "word": "it takes effect when a model is loaded",
    "file": "what suits one model does not suit the next that a chat loads",
}

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
    """The largest branching and depth of drafts; None leaves the choice to each drafter.

    Attributes:
        branching: The most children of a node.
        depth: The most nodes on a path below the root, or in a chain.

    Raises:
        ValueError: A value is no whole number of 1 or more.
    """

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

    Attributes:
        drafter: "auto", which measures what is fastest here; "none", "suffix", "table", "pool",
            "model", "medusa", "eagle3" or "exit"; or a file, folder or hub id of a trained drafter.
            Several, separated by commas, become one pool.
        draft_model: Checkpoint of a draft model; it makes "model" the default drafter.
        lookahead: Longest chain that a draft model drafts.
        max_kv_size: Rows of a rotating cache; None for a cache that grows.
        keep: Number of first tokens that a rotating cache never evicts.
        kv_bits: 8 or 4 for a quantised cache, whose output distribution is that of the quantised
            cache for plain decoding and for every drafter; None for a full one.
        learn: Folder in which the table stores what it learns, from which the next run with this
            target starts. Parts of the text of chats can be reconstructed from it. None stores
            nothing.
        exit_threshold: Probability, in (0, 1], above which the drafter "exit" continues; None for
            the threshold that is stored with the exit.
        dtype: "float16", "bfloat16" or "float32": the dtype to compute in. "auto" is float32 on a
            CPU, where half precision works but is slow; on a GPU the dtype of the stored weights,
            or bfloat16 if float16 is too small for the model.
        port: "own" or "mlx-lm" allows only that code; "auto" prefers our own.
        adapter: A folder with adapters (LoRA), which mlx-lm applies.
        branching: Maximum number of children of a draft node; None leaves it to the drafter.
        depth: Longest path of a draft, and the length of the chain of a drafter that drafts chains,
            in place of `lookahead`; None leaves it to the drafter.
        chain_rule: Rule that verifies sampled chains, "block" or "token". The settings of a reply
            may name another; the output distribution is the same.
        hosts: The ranks of the target, if one machine cannot hold it: a number of local processes,
            addresses separated by commas, or a hostfile of `mlx.launch`.

    Raises:
        ValueError: A value is of the wrong type or out of range.
    """

    drafter: str | PathLike[str] = setting(
        "auto",
        _NAME_OR_PATH,
        "none, suffix, table, pool, medusa, eagle3, exit, model; or where a trained drafter lies; "
        "or several separated by commas, as one pool",
        flag="--drafter",
        word="draft",
        file="drafter",
        noun="WORD|FILE|FOLDER|ID|LIST",
        unset="defaults to auto: the drafter that is fastest here",
    )
    draft_model: str | PathLike[str] | None = setting(
        None,
        _NAME_OR_PATH,
        "checkpoint that drafts (drafter 'model')",
        flag="--draft-model",
        absent=_OF_ONE_MODEL,
    )
    lookahead: int = setting(
        DEFAULT_LOOKAHEAD,
        _ONE_OR_MORE,
        "longest chain of a draft model",
        flag="--lookahead",
        noun="COUNT",
        absent=_OF_ONE_MODEL,
    )
    max_kv_size: int | None = setting(
        None,
        _ONE_OR_MORE,
        "rows of a rotating cache",
        flag="--max-kv-size",
        noun="COUNT",
        unset="defaults to a full cache",
        absent=_OF_ONE_MODEL,
    )
    keep: int = setting(
        DEFAULT_KEEP,
        whole_number(),
        "first tokens that a rotating cache never evicts",
        flag="--keep",
        noun="COUNT",
        absent=_OF_ONE_MODEL,
    )
    kv_bits: int | None = setting(
        None,
        Range(int, "4 or 8", _check_kv_bits),
        "4 or 8: quantised keys and values",
        flag="--kv-bits",
        noun="BITS",
        absent=_OF_ONE_MODEL,
    )
    learn: str | PathLike[str] | None = setting(
        None,
        # Outside Python the folder is fixed: users say yes or no.
        replace(_NAME_OR_PATH, kind=bool),
        "keep what the table learns from run to run, on this disk and for you alone; parts of your "
        "chats can be reconstructed from it (chat keeps it, generate does not)",
        flag="--learn",
        file="learn",
        absent={"word": "the table is chosen when a model is loaded"},
    )
    exit_threshold: float | None = setting(
        None,
        number(_THRESHOLD, _is_threshold),
        "the drafter 'exit' goes on while its best token has this probability, more than 0 and at "
        "most 1",
        flag="--exit-threshold",
        noun="X",
        absent=_OF_ONE_MODEL,
    )
    dtype: str = setting(
        "auto",
        Range(str, f"one of {', '.join(DTYPES)}", _check_dtype, DTYPES),
        "in which floating-point type the model computes; auto is float32 on a CPU, and on a GPU "
        "what the weights are stored in, where that is wide enough",
        flag="--dtype",
        absent=_OF_ONE_MODEL,
    )
    port: Port = setting(
        "auto",
        one_of(PORTS),
        "whose code runs the model: ours, where there is a port of its type, or mlx-lm's; auto "
        "prefers ours",
        flag="--port",
        absent=_OF_ONE_MODEL,
    )
    adapter: str | PathLike[str] | None = setting(
        None,
        _NAME_OR_PATH,
        "folder with adapters (LoRA) for the model; mlx-lm applies them",
        flag="--adapter",
        noun="FOLDER",
        absent=_OF_ONE_MODEL,
    )
    branching: int | None = setting(
        None,
        _ONE_OR_MORE,
        "maximum number of children of a draft node",
        flag="--branching",
        noun="N",
        unset="defaults to what the drafter decides",
        absent=_OF_ONE_MODEL,
    )
    depth: int | None = setting(
        None,
        _ONE_OR_MORE,
        "maximum depth of a draft",
        flag="--depth",
        noun="N",
        unset="defaults to what the drafter decides",
        absent=_OF_ONE_MODEL,
    )
    chain_rule: ChainRule = setting(
        "block",
        one_of(CHAIN_RULES),
        "how sampled chains are verified; both keep the output distribution",
        flag="--chain-rule",
        absent=_OF_ONE_MODEL,
    )

    hosts: str | None = setting(
        None,
        Range(str, "a number, addresses separated by commas, or a hostfile", text),
        "where the target stands, if one machine cannot hold it: a number of local processes, "
        "addresses separated by commas, or a hostfile of mlx.launch; this machine is the first",
        flag="--hosts",
        noun="FILE|LIST",
        absent={**_OF_ONE_MODEL, "file": "a chat joins its ranks once, when it starts"},
    )

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def limits(self) -> DraftLimits:
        """The largest branching and depth of drafts."""
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
    exit_threshold: float | None
    dtype: str
    port: Port
    adapter: str | PathLike[str] | None
    branching: int | None
    depth: int | None
    chain_rule: ChainRule
    hosts: str | None
