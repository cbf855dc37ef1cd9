"""A drafter that breaks down costs its drafts: the reply is the same, and the next one drafts."""

import pytest

from mlxspec.errors import CacheError
from mlxspec.params import GenerationParams
from mlxspec.trace.events import DrafterFailed, DraftVerified, GenerationFinished, PlainDecoded
from mlxspec.trace.file import event_from_json, event_to_json
from tests.support.adversaries import AlwaysRight
from tests.support.pairwise import each_value
from tests.support.tiny import make_engine, tiny_model, tokens_of
from tests.support.tiny_heads_eagle import eagle3_drafter
from tests.support.tiny_heads_exit import exit_engine
from tests.support.truth import Target

MODEL = tiny_model()
TARGETS = {kind: Target(MODEL, kind) for kind in ("full", "rotating")}
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
FULL = PROMPT + TARGETS["full"].greedy(PROMPT, 40)
PARAMS = GenerationParams(max_tokens=24, num_draft_tokens=3)


def break_down(drafter, method, call, error=None, *, is_after=False):
    """Let one method of a drafter raise at its n-th call, before or after it did its work."""
    error = error or RuntimeError("no memory")
    act, calls = getattr(drafter, method), []

    def failing(*args):
        calls.append(args)
        if len(calls) == call and not is_after:
            raise error
        done = act(*args)
        if len(calls) == call:
            raise error
        return done

    setattr(drafter, method, failing)


def faults_of(events):
    return [event for event in events if isinstance(event, DrafterFailed)]


def paths_of(events):
    return [event.path for event in events if isinstance(event, DraftVerified)]


def assert_says_the_same_and_drafts_again(engine, kind="full"):
    """The reply is the target's, told with one fault; the next reply drafts as before."""
    events = list(engine.generate(PROMPT, PARAMS))
    told = tokens_of(events)
    assert told == TARGETS[kind].greedy(PROMPT, 24)
    (fault,) = faults_of(events)
    after = events[events.index(fault) + 1 :]
    assert all(isinstance(event, PlainDecoded | GenerationFinished) for event in after)
    assert list(engine.target.history) == [*PROMPT, *told][: len(engine.target)]
    assert len(engine.target) >= len(PROMPT) + len(told) - 1
    assert engine.target.cache.num_staged == 0
    again = list(engine.generate(PROMPT, PARAMS))
    assert tokens_of(again) == told
    assert faults_of(again) == []
    return fault, again


@each_value(
    kind=TARGETS,
    is_after=[False, True],
    at=[("start", 1), ("propose", 1), ("propose", 3), ("update", 2)],
)
def test_the_reply_goes_on_plainly(kind, at, is_after):
    method, call = at
    drafter = AlwaysRight(FULL)
    break_down(drafter, method, call, CacheError("the rows are gone"), is_after=is_after)
    fault, again = assert_says_the_same_and_drafts_again(make_engine(MODEL, drafter, kind), kind)
    assert (fault.drafter, fault.message) == (drafter.name, "the rows are gone")
    assert event_from_json(event_to_json(fault)) == fault
    assert paths_of(again)


@each_value(kind=TARGETS, method=["propose", "update"], is_after=[False, True])
def test_a_drafter_that_stages_rows_of_the_target_leaves_none(kind, method, is_after):
    engine = exit_engine(MODEL, kind)
    break_down(engine.drafter, method, 3, is_after=is_after)
    assert_says_the_same_and_drafts_again(engine, kind)


@pytest.mark.parametrize("method", ["propose", "update"])
def test_a_drafter_that_reads_the_target_is_told_everything_in_the_next_reply(method):
    engine, sound = (make_engine(MODEL, None, make_drafter=eagle3_drafter) for _ in range(2))
    break_down(engine.drafter, method, 2)
    _, again = assert_says_the_same_and_drafts_again(engine)
    assert paths_of(again) == paths_of(sound.generate(PROMPT, PARAMS))


def test_a_drafter_that_broke_down_is_not_told_anything_more():
    engine = make_engine(MODEL, None, make_drafter=eagle3_drafter)
    drafter = engine.drafter
    break_down(drafter, "propose", 2)
    read, told = drafter.read, []
    drafter.read = lambda *args: (told.append(args), read(*args))
    list(engine.generate(PROMPT, PARAMS))
    assert len(told) == 2  # the prompt and the first round


@pytest.mark.parametrize("error", [TypeError("a mistake"), KeyboardInterrupt()], ids=type)
def test_mistakes_and_interrupts_are_not_hidden_and_the_next_reply_is_right(error):
    drafter = AlwaysRight(FULL)
    break_down(drafter, "propose", 2, error)
    engine = make_engine(MODEL, drafter)
    with pytest.raises(type(error)):
        list(engine.generate(PROMPT, PARAMS))
    assert tokens_of(engine.generate(PROMPT, PARAMS)) == TARGETS["full"].greedy(PROMPT, 24)
