"""A function of the caller that raises: the caller gets its error, and the next reply is right."""

import mlx.core as mx
import pytest

from mlxspec.params import GenerationParams
from tests.engine.test_conversation import PARAMS as CHAT_PARAMS
from tests.engine.test_conversation import chat, reply_to
from tests.engine.test_interrupts import (
    DRAFTERS,
    PARAMS,
    PROMPT,
    SHADOWS,
    assert_replies_as_new,
    engine_with,
)
from tests.support.pairwise import each_value


class Mistake(Exception):
    """What a function of the caller raises."""


class Late:
    """Answers like `first` some times, and raises then."""

    def __init__(self, first, count):
        self.first, self.left = first, count

    def __call__(self, *args):
        self.left -= 1
        if self.left < 0:
            raise Mistake("by the caller")
        return self.first(*args)


CALLBACKS = {
    "should_stop": lambda late: ({}, {"should_stop": late(lambda: False)}),
    "stop_when": lambda late: ({}, {"stop_when": late(lambda token: False)}),
    "on_logits": lambda late: ({"on_logits": late(lambda tokens, logits: None)}, {}),
    "processor": lambda late: ({"logits_processors": (late(lambda text, logits: logits),)}, {}),
    "sampler": lambda late: ({"sampler": late(lambda logprobs: mx.argmax(logprobs, -1))}, {}),
}


@each_value(callback=CALLBACKS, drafter=DRAFTERS, kind=SHADOWS)
def test_a_reply_after_a_function_that_raised_is_right(callback, drafter, kind):
    engine = engine_with(drafter, kind, looks_ahead=True)
    for count in (0, 1, 3):
        settings, asked = CALLBACKS[callback](lambda first, count=count: Late(first, count))
        params = GenerationParams(max_tokens=7, num_draft_tokens=4, **settings)
        with pytest.raises(Mistake, match="by the caller"):
            list(engine.generate(PROMPT, params, **asked))
    assert_replies_as_new(engine, kind, PARAMS)


@pytest.mark.parametrize("callback", ["should_stop", "stop_when"])
@pytest.mark.parametrize("count", [0, 2])
def test_a_chat_goes_on_after_a_function_that_raised(callback, count):
    talk = chat()
    _, asked = CALLBACKS[callback](lambda first: Late(first, count))
    with pytest.raises(Mistake, match="by the caller"):
        list(talk.reply("hello", CHAT_PARAMS, **asked))
    events = list(talk.regenerate(CHAT_PARAMS))
    told = [token.token for event in events for token in getattr(event, "emit", ())]
    assert told == reply_to(talk.engine.tokenizer.encode("uhellovw"))
