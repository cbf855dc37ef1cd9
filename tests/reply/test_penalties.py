"""Which tokens penalties count at the edges of a prompt, against the law computed in NumPy."""

import numpy as np
import pytest

from mlxspec.drafters.none import NoDrafter
from mlxspec.params import GenerationParams, SamplingParams
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.truth import Target

MODEL = tiny_model()
TARGET = Target(MODEL)


@pytest.mark.parametrize("prompt", [[5], [5, 9, 2], [9, 5, 5]])
@pytest.mark.parametrize("place", ["first", "last"])
def test_a_repetition_penalty_counts_every_token_of_the_prompt(prompt, place):
    """The token is the likeliest by far, but for the penalty."""
    counted = prompt[0 if place == "first" else -1]
    bias = {counted: 40.0}
    sampling = SamplingParams(logit_bias=bias, repetition_penalty=1000.0)
    params = GenerationParams(max_tokens=1, sampling=sampling)
    logits = TARGET.logits(tuple(prompt)) + np.eye(24)[counted] * 40
    assert int(np.argmax(logits)) == counted
    for token in set(prompt):
        logits[token] *= 1 / 1000 if logits[token] > 0 else 1000
    found = emitted(make_engine(MODEL, NoDrafter()).generate(prompt, params))
    assert found == [int(np.argmax(logits))] != [counted]
