"""What a script of mlx-lm reads of a response, and what its sampler keeps; public names alone."""

import numpy as np

from mlxspec.compat import make_sampler, stream_generate
from mlxspec.law import Law
from mlxspec.testing import KnowingDrafter, tiny_engine, tiny_model
from tests.truth import Target

PROMPT = [1, 2, 3, 1]
TARGET = Target(tiny_model())
REPLY = TARGET.greedy(PROMPT, 8)


def responses(engine, **settings):
    return list(stream_generate(engine, engine.tokenizer, PROMPT, **settings))


def test_from_draft_is_told_of_what_a_drafter_proposed_and_of_nothing_else():
    engine = tiny_engine(KnowingDrafter([*PROMPT, *REPLY[:3]]))
    told = responses(engine, max_tokens=8)
    assert [response.token for response in told] == REPLY
    assert [response.from_draft for response in told] == [True] * 3 + [False] * 5


def test_top_p_keeps_the_likeliest_tokens_of_this_share():
    told = responses(tiny_engine(), max_tokens=40, sampler=make_sampler(temp=1.0, top_p=0.8))
    tokens = list(PROMPT)
    num_choices = 0  # places where a token beyond is likely enough to be drawn now and then
    for response in told:
        probs = TARGET.law(tuple(tokens), Law(temperature=1.0), len(PROMPT))
        order = np.argsort(-probs)
        count = int((np.cumsum(probs[order]) < 0.8).sum()) + 1
        assert response.token in order[:count]
        num_choices += probs[order[count:]].sum() > 0.1
        tokens.append(response.token)
    assert len(told) == 40
    assert num_choices > 9
