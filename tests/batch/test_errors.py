"""What a batch refuses, before anything is read."""

import pytest

from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.errors import ContextLengthError
from mlxspec.params import GenerationParams
from tests.support.adversaries import RandomTrees
from tests.support.batches import DRAFTERS, MODEL, PROMPTS
from tests.support.tiny import make_engine, tiny_model


@pytest.mark.parametrize(
    ("prompts", "settings", "message"),
    [
        (PROMPTS, {"batch_size": 0}, "batch_size must be 1 or more; got 0"),
        (PROMPTS, {"rows_per_round": 0}, "rows_per_round must be 1 .* or more; got 0"),
        ([[1], []], {}, "prompt 1 is empty: give at least one token"),
        ([[1], [2, 24]], {}, "prompt 1 does not fit: token 24 is not in the vocabulary of 0 to 23"),
        ([[1]], {"params": [GenerationParams()] * 2}, "got 2 settings for 1 prompts: give one for"),
    ],
)
def test_refuses_what_cannot_be_done_before_anything_is_read(prompts, settings, message):
    engine = make_engine(MODEL, DRAFTERS["none"]())
    with pytest.raises(ValueError, match=message):
        engine.generate_batch(prompts, **settings)


def test_refuses_a_prompt_longer_than_the_context():
    engine = make_engine(tiny_model(max_position_embeddings=16), DRAFTERS["none"]())
    with pytest.raises(ContextLengthError, match="prompt 2 has 19 tokens; the model takes 16"):
        engine.generate_batch(PROMPTS)


def test_refuses_one_text_in_place_of_a_list():
    with pytest.raises(ValueError, match="a list of prompts; got one text"):
        make_engine(MODEL, DRAFTERS["none"]()).generate_batch("abc")


@pytest.mark.parametrize("is_pooled", [False, True])
def test_refuses_a_drafter_that_cannot_be_made_anew(is_pooled):
    engine = make_engine(MODEL, DRAFTERS["none"]())
    drafter = RandomTrees(24)
    drafter = PoolDrafter([SuffixDrafter(), drafter]) if is_pooled else drafter
    message = "the drafter 'adversary' .* a method `fresh`"
    with pytest.raises(ValueError, match=message):
        engine.generate_batch(PROMPTS, drafter=drafter)
