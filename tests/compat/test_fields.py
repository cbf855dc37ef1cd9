"""The fields of a response that scripts of mlx-lm use, and its sampler; only public names."""

import mlx.core as mx
import numpy as np

from mlxspec.compat import make_sampler, stream_generate
from mlxspec.params import SamplingParams
from mlxspec.testing import OracleDrafter
from tests.support.peers import make_pair
from tests.support.truth import Target

PROMPT = [5, 9, 200, 31]


def responses(pair, max_tokens, **settings):
    return list(
        stream_generate(pair.engine, pair.tokenizer, PROMPT, max_tokens=max_tokens, **settings)
    )


def test_from_draft_marks_exactly_the_tokens_that_a_drafter_proposed():
    reply = Target(make_pair().engine.target.model).greedy(PROMPT, 8)
    told = responses(make_pair(OracleDrafter([*PROMPT, *reply[:3]])), 8)
    assert [response.token for response in told] == reply
    assert [response.from_draft for response in told] == [True] * 3 + [False] * 5


def test_top_p_keeps_the_most_probable_tokens_of_this_share():
    mx.random.seed(3)
    pair = make_pair()
    target, tokens, num_told, num_choices = Target(pair.engine.target.model), list(PROMPT), 0, 0
    for response in responses(pair, 30, sampler=make_sampler(temp=1.0, top_p=0.5)):
        probs = target.distribution(tuple(tokens), SamplingParams(temperature=1.0), len(PROMPT))
        order = np.argsort(-probs)
        count = int((np.cumsum(probs[order]) < 0.5).sum()) + 1
        assert response.token in order[:count]
        tokens.append(response.token)
        num_told += 1
        num_choices += probs[order[count:]].sum() > 0.2  # one beyond would be drawn at times
    assert num_told > 9
    assert num_choices > 5
