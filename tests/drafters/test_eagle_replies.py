"""The EAGLE drafters from reply to reply: others between, interrupts, an answer once more."""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.engine.engine import Engine
from mlxspec.params import GenerationParams, SamplingParams
from tests.support.eagle_reference import paths_of
from tests.support.tiny import ToyTokenizer, emitted, tiny_model
from tests.support.tiny_heads_eagle import EAGLE_DRAFTERS
from tests.support.truth import Target

PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
LENGTH = 14
MODEL = tiny_model()
TRUTH = Target(MODEL)
EACH = pytest.mark.parametrize("name", EAGLE_DRAFTERS)


def make(name):
    """An engine whose drafter is of the EAGLE family."""
    target = Decoder(MODEL)
    return Engine(target, EAGLE_DRAFTERS[name](target), ToyTokenizer(), name="tiny")


@EACH
def test_a_second_turn_and_an_answer_given_again_are_those_of_the_target(name):
    engine = make(name)
    params = GenerationParams(max_tokens=9, num_draft_tokens=7)
    expected = TRUTH.greedy(PROMPT, 9)
    for _ in range(2):
        assert emitted(engine.generate(PROMPT, params)) == expected
    turn = [*PROMPT, *expected, 5, 9]
    assert emitted(engine.generate(turn, params)) == TRUTH.greedy(turn, 9)
    assert engine.drafter.num_read == len(engine.target)


@EACH
def test_a_text_known_from_an_earlier_turn_is_drafted_as_if_read_from_nothing(name):
    engine, fresh = make(name), make(name)
    params = GenerationParams(max_tokens=9, num_draft_tokens=7)
    first = emitted(engine.generate(PROMPT, params))
    turn = [*PROMPT, *first[:6], 5, 9]  # leaves the reply two tokens before its end
    drafts = []
    for each in (engine, fresh):
        list(each.generate(turn, GenerationParams(max_tokens=1)))
        each.target.rollback_to(len(turn) - 1)
        each.drafter.start(turn, SamplingParams(), mx.random.key(0))
        drafts.append(paths_of(each.drafter.propose(turn[-1], 8)))
    assert set(drafts[0]) == set(drafts[1])
    np.testing.assert_allclose(
        list(drafts[0].values()), [drafts[1][path] for path in drafts[0]], rtol=1e-3
    )


def test_a_drafter_that_fails_while_drafting_can_go_on(monkeypatch):
    engine = make("eagle3")
    engine.target.attach(engine.drafter.readers)
    engine.target.observe(PROMPT[:-1])
    drafter = engine.drafter
    drafter.start(PROMPT, SamplingParams(), mx.random.key(0))
    expected = paths_of(drafter.propose(PROMPT[-1], 8))
    drafter.start(PROMPT, SamplingParams(), mx.random.key(0))

    def fail(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(drafter, "extend", fail)
        with pytest.raises(KeyboardInterrupt):
            drafter.propose(PROMPT[-1], 8)
    assert drafter.cache.num_staged == 0
    again = paths_of(drafter.propose(PROMPT[-1], 8))
    np.testing.assert_allclose(list(again.values()), list(expected.values()), rtol=1e-4)


@EACH
def test_a_reply_after_an_interrupted_one_is_right_and_drafted_as_ever(name, monkeypatch):
    engine = make(name)
    params = GenerationParams(max_tokens=LENGTH, num_draft_tokens=7)
    usual = [event.nodes for event in engine.generate(PROMPT, params) if event.t == "draft"]
    for is_told, rounds in ((False, 1), (True, 3)):
        events = engine.generate(PROMPT, params)
        while rounds:
            rounds -= next(events).t in ("verify", "plain")
        read = engine.drafter.read

        def interrupted(tokens, states, read=read, is_told=is_told):
            if is_told:
                read(tokens, states)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(engine.drafter, "read", interrupted)
            with pytest.raises(KeyboardInterrupt):
                list(events)
        again = list(engine.generate(PROMPT, params))
        assert emitted(again) == TRUTH.greedy(PROMPT, LENGTH)
        nodes = [event.nodes for event in again if event.t == "draft"]
        assert [[node.token for node in each] for each in nodes] == [
            [node.token for node in each] for each in usual
        ]
