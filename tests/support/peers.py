"""A tiny engine with a real tokenizer, and mlx-lm with the same weights and the same tokenizer."""

from dataclasses import dataclass

import mlx_lm.tokenizer_utils as their_tokenizers
from mlx import nn

from mlxspec.bench.peers import mlx_lm_model
from mlxspec.compat import TokenizerWrapper
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.engine.engine import Engine
from mlxspec.text.tokenizer import Tokenizer
from tests.loading.test_tokenizer import byte_level
from tests.support.tiny import make_cache, tiny_model

TEMPLATE = (
    "{% for m in messages %}<|user|>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|user|>{% endif %}"
)


@dataclass(frozen=True)
class Pair:
    """The same model twice."""

    engine: Engine
    tokenizer: TokenizerWrapper
    their_model: nn.Module
    their_tokenizer: their_tokenizers.TokenizerWrapper


def make_pair(
    drafter=None, kind="full", *, make_drafter=None, tokenizer=None, seed=5, stops=(), **config
) -> Pair:
    """The same model twice, one of them in an engine.

    Args:
        drafter: What drafts; left out, suffixes.
        kind: Of the cache.
        make_drafter: Returns what drafts in place of `drafter`, given the size of the vocabulary.
        tokenizer: What our side reads text with, where that is not what theirs does.
        seed: Of the weights.
        stops: Further tokens that end a reply, for both.
        config: Of the model.
    """
    wrapped = byte_level(chat_template=TEMPLATE)
    model = tiny_model("qwen2", vocab_size=len(wrapped), seed=seed, **config)
    tokenizer = tokenizer or Tokenizer(wrapped, stops)
    decoder = Decoder(model, make_cache(model, kind))
    own = make_drafter(decoder.vocab_size) if make_drafter else drafter or SuffixDrafter()
    engine = Engine(decoder, own, tokenizer, name="tiny")
    theirs = their_tokenizers.TokenizerWrapper(
        byte_level(chat_template=TEMPLATE),
        their_tokenizers.BPEStreamingDetokenizer,
        eos_token_ids=tokenizer.eos_token_ids,
    )
    return Pair(engine, TokenizerWrapper(tokenizer), mlx_lm_model(model), theirs)
