"""The settings of sampling, of a reply and of what is loaded; this package needs no MLX."""

from mlxspec.params.generation import (
    DEFAULT_NUM_DRAFT_TOKENS,
    ChainRule,
    GenerationParams,
    LogitsProcessor,
    Rule,
    Sampler,
    check_params,
)
from mlxspec.params.grammar import Grammar
from mlxspec.params.load import (
    DEFAULT_KEEP,
    DEFAULT_LOOKAHEAD,
    DEFAULT_MODEL,
    DTYPES,
    FREE,
    KV_BITS,
    KV_BITS_IN_WORDS,
    DraftLimits,
    Options,
    OptionsDict,
    check_threshold,
)
from mlxspec.params.sampling import GREEDY, FilterOrder, SamplingParams
