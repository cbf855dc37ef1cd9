"""A tiny engine with a real tokenizer, and mlx-lm with the same weights and the same tokenizer."""

from dataclasses import dataclass

import mlx_lm.tokenizer_utils as their_tokenizers
from mlx import nn

from mlxspec.bench.peers import mlx_lm_model
from mlxspec.compat import TokenizerWrapper
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.suffix.drafter import SuffixDrafter
from mlxspec.engine.engine import Engine
from mlxspec.target.decoder import Decoder
from mlxspec.tokenizer import Tokenizer
from tests.loading.test_tokenizer import byte_level
from tests.support.tiny import make_cache, tiny_model

TEMPLATE = (
    "{% for m in messages %}<|user|>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|user|>{% endif %}"
)
DRAFTERS = {"none": NoDrafter, "suffix": SuffixDrafter}


@dataclass(frozen=True)
class Pair:
    """The same model twice."""

    engine: Engine
    tokenizer: TokenizerWrapper
    their_model: nn.Module
    their_tokenizer: their_tokenizers.TokenizerWrapper


def make_pair(drafter=None, kind="full", *, seed=5, stops=(), **config) -> Pair:
    """`stops` are further tokens that end a reply, for both."""
    wrapped = byte_level(chat_template=TEMPLATE)
    model = tiny_model("qwen2", vocab_size=len(wrapped), seed=seed, **config)
    tokenizer = Tokenizer(wrapped, stops)
    decoder = Decoder(model, make_cache(model, kind))
    engine = Engine(decoder, drafter or SuffixDrafter(), tokenizer, name="tiny")
    theirs = their_tokenizers.TokenizerWrapper(
        byte_level(chat_template=TEMPLATE),
        their_tokenizers.BPEStreamingDetokenizer,
        eos_token_ids=tokenizer.eos_token_ids,
    )
    return Pair(engine, TokenizerWrapper(tokenizer), mlx_lm_model(model), theirs)
