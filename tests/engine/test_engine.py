"""The engine around the round: ends, cancels, counts, reuse and errors."""

import itertools

import pytest

from mlxspec.drafters.none import NoDrafter
from mlxspec.drafts.draft import Draft
from mlxspec.errors import ContextLengthError
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.trace.events import DraftProposed, DraftVerified, GenerationFinished, PrefillProgress
from mlxspec.trace.file import event_from_json, event_to_json
from tests.support.adversaries import AlwaysRight, AlwaysWrong, RandomTrees
from tests.support.pairwise import each_value
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.truth import Target

MODEL = tiny_model()
TARGET = Target(MODEL)
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
REPLY = TARGET.greedy(PROMPT, 40)
FULL = PROMPT + REPLY
DRAFTERS = {
    "none": NoDrafter,
    "always right": lambda: AlwaysRight(FULL),
    "always wrong": lambda: AlwaysWrong(FULL),
    "random trees": lambda: RandomTrees(24),
}
each_drafter = pytest.mark.parametrize("drafter", DRAFTERS)


def run(drafter="always right", *, kind="full", prompt=PROMPT, **params):
    engine = make_engine(MODEL, DRAFTERS[drafter](), kind)
    settings = {"max_tokens": 20, "num_draft_tokens": 5, **params}
    return engine, list(engine.generate(prompt, GenerationParams(**settings)))


def finish(events) -> GenerationFinished:
    assert isinstance(events[-1], GenerationFinished)
    return events[-1]


def text_of(events) -> str:
    pieces = [token.text for event in events for token in getattr(event, "emit", ())]
    return "".join(pieces) + finish(events).text


# ---- ends ------------------------------------------------------------------------------------


@each_value(count=[1, 2, 5, 16, 32], drafter=DRAFTERS)
def test_max_tokens_is_exact(drafter, count):
    _, events = run(drafter, max_tokens=count)
    assert emitted(events) == REPLY[:count]
    assert finish(events).reason == "length"


@each_value(place=range(8), drafter=DRAFTERS)
def test_a_stop_token_ends_the_reply_wherever_it_stands(drafter, place):
    engine = make_engine(MODEL, DRAFTERS[drafter]())
    engine.tokenizer.eos_token_ids = (REPLY[place],)
    events = list(engine.generate(PROMPT, GenerationParams(num_draft_tokens=5)))
    first = REPLY.index(REPLY[place])
    assert emitted(events) == REPLY[: first + 1]
    assert finish(events).reason == "stop"


@pytest.mark.parametrize("place", range(6))
def test_nothing_behind_the_stop_token_stays_in_the_cache(place):
    """It ends the reply in the midst of right drafts, and is the last token: not in the cache."""
    engine = make_engine(MODEL, AlwaysRight(FULL))
    engine.tokenizer.eos_token_ids = (REPLY[place],)
    told = emitted(engine.generate(PROMPT, GenerationParams(num_draft_tokens=8)))
    assert list(engine.target.history) == [*PROMPT, *told][:-1]


def test_no_forward_runs_after_the_stop_token(forwards):
    engine = make_engine(MODEL, AlwaysRight(FULL))
    engine.tokenizer.eos_token_ids = (REPLY[3],)
    assert REPLY.index(REPLY[3]) == 3
    list(engine.generate(PROMPT, GenerationParams(num_draft_tokens=5)))
    assert forwards.of(engine.target.model) == 2  # the prompt, and one round of five right tokens


def test_ignore_eos_goes_on_after_a_stop_token():
    engine = make_engine(MODEL, NoDrafter())
    engine.tokenizer.eos_token_ids = (REPLY[0],)
    params = GenerationParams(max_tokens=9, ignore_eos=True)
    assert emitted(engine.generate(PROMPT, params)) == REPLY[:9]


@each_drafter
def test_a_stop_string_ends_the_reply_and_is_left_out(drafter):
    letters = "".join(chr(ord("a") + token) for token in REPLY)
    stop = letters[6:9]
    _, events = run(drafter, stop=(stop,), max_tokens=40)
    assert text_of(events) == letters[: letters.index(stop)]
    assert finish(events).reason == "stop"


@each_drafter
def test_a_full_context_ends_the_reply(drafter):
    model = tiny_model(max_position_embeddings=16)
    engine = make_engine(model, DRAFTERS[drafter]())
    events = list(engine.generate(PROMPT, GenerationParams(num_draft_tokens=5)))
    assert finish(events).reason == "context"
    assert len(emitted(events)) == 16 - len(PROMPT) + 1
    assert engine.target.cache.offset == 16


def test_a_rotating_cache_is_never_full():
    model = tiny_model(max_position_embeddings=16)
    engine = make_engine(model, RandomTrees(24), "rotating")
    events = list(engine.generate(PROMPT, GenerationParams(max_tokens=50)))
    assert len(emitted(events)) == 50


# ---- one forward, one wait -------------------------------------------------------------------


@each_drafter
def test_a_round_costs_one_target_forward(drafter, forwards):
    engine, events = run(drafter)
    stats = finish(events).stats
    assert forwards.of(engine.target.model) == 1 + stats["target_forwards"]
    assert stats["target_forwards"] == stats["rounds"] + stats["plain_forwards"]


def test_right_drafts_save_forwards():
    _, events = run("always right", max_tokens=24, num_draft_tokens=5)
    assert finish(events).stats["target_forwards"] == 4
    assert finish(events).stats["mean_acceptance_length"] == 6


def test_wrong_drafts_still_emit_a_token_a_round():
    _, events = run("always wrong")
    stats = finish(events).stats
    assert stats["target_forwards"] == 20
    assert stats["accepted"] == 0


def test_accepted_drafts_behind_the_end_are_not_counted():
    _, events = run("always right", max_tokens=40, stop=("".join(map(letter, REPLY[1:3])),))
    stats = finish(events).stats
    assert stats["accepted"] == 3


def letter(token):
    return chr(ord("a") + token)


# ---- interrupted -----------------------------------------------------------------------------


@each_drafter
@pytest.mark.parametrize("kind", ["full", "rotating"])
def test_a_cancelled_reply_leaves_an_engine_that_replies_as_new(drafter, kind):
    for rounds in range(5):
        engine = make_engine(MODEL, DRAFTERS[drafter](), kind)
        left = iter([False] * (1 + rounds))
        params = GenerationParams(max_tokens=36, num_draft_tokens=5)
        first = list(engine.generate(PROMPT, params, should_stop=lambda it=left: next(it, True)))
        assert finish(first).reason == "cancelled"
        again = emitted(engine.generate(PROMPT, params))
        assert again == Target(MODEL, kind).greedy(PROMPT, 36)
        assert again[: len(emitted(first))] == emitted(first)


@each_drafter
def test_an_iteration_left_anywhere_leaves_an_engine_that_replies_as_new(drafter):
    params = GenerationParams(max_tokens=8, num_draft_tokens=5)
    engine = make_engine(MODEL, DRAFTERS[drafter]())
    for count in range(1, 8):
        events = engine.generate(PROMPT, params)
        for _ in zip(range(count), events, strict=False):
            pass
        events.close()
        assert emitted(engine.generate(PROMPT, params)) == REPLY[:8]


def test_a_drafter_that_raises_leaves_an_engine_that_replies_as_new():
    class Breaks(AlwaysRight):
        def propose(self, root, budget):
            if len(self.tokens) > 12:
                raise TypeError("drafter broke")
            return super().propose(root, budget)

    engine = make_engine(MODEL, Breaks(FULL))
    params = GenerationParams(max_tokens=20, num_draft_tokens=2)
    with pytest.raises(TypeError, match="drafter broke"):
        list(engine.generate(PROMPT, params))
    right = AlwaysRight(FULL)
    assert emitted(engine.generate(PROMPT, params, drafter=right)) == REPLY[:20]


# ---- reuse -----------------------------------------------------------------------------------


@each_value(drafter=DRAFTERS, kind=["full", "rotating", "int8"])
def test_a_longer_prompt_reads_only_what_is_new(drafter, kind):
    engine = make_engine(MODEL, DRAFTERS[drafter](), kind)
    params = GenerationParams(max_tokens=10, num_draft_tokens=5)
    first = emitted(engine.generate(PROMPT, params))
    longer = [*PROMPT, *first, 9, 2, 5]
    events = list(engine.generate(longer, params))
    progress = [event for event in events if isinstance(event, PrefillProgress)]
    assert progress[-1].reused == len(PROMPT) + len(first) - 1
    assert emitted(events) == Target(MODEL, kind).greedy(longer, 10)


@pytest.mark.parametrize("kind", ["full", "rotating"])
def test_another_prompt_shares_only_its_beginning(kind):
    engine = make_engine(MODEL, RandomTrees(24), kind)
    params = GenerationParams(max_tokens=15, num_draft_tokens=5)
    list(engine.generate(PROMPT, params))
    other = [*PROMPT[:5], 20, 21]
    assert emitted(engine.generate(other, params)) == Target(MODEL, kind).greedy(other, 15)


def test_the_same_seed_gives_the_same_tokens():
    sampling = SamplingParams(temperature=1.0)
    runs = [run("random trees", sampling=sampling, seed=5)[1] for _ in range(2)]
    assert emitted(runs[0]) == emitted(runs[1])
    assert emitted(runs[0]) != emitted(run("random trees", sampling=sampling, seed=6)[1])


# ---- events ----------------------------------------------------------------------------------


def test_the_texts_of_the_events_are_the_reply():
    _, events = run("random trees")
    assert text_of(events) == "".join(map(letter, REPLY[:20]))


def test_every_event_survives_the_trace():
    _, events = run("random trees")
    assert [event_from_json(event_to_json(event)) for event in events] == events


def test_the_kinds_say_who_wrote_a_token():
    _, events = run("always right", max_tokens=12)
    kinds = [token.kind for event in events for token in getattr(event, "emit", ())]
    assert kinds == ["accepted"] * 5 + ["bonus"] + ["accepted"] * 5 + ["bonus"]
    _, events = run("always wrong", max_tokens=3)
    kinds = [token.kind for event in events for token in getattr(event, "emit", ())]
    assert kinds == ["corrected", "corrected", "plain"]  # the last token is never drafted for


def test_a_verdict_names_nodes_of_its_draft():
    _, events = run("random trees", num_draft_tokens=12)
    for draft, verdict in itertools.pairwise(events):
        if isinstance(draft, DraftProposed):
            assert isinstance(verdict, DraftVerified)
            nodes = {node.index: node for node in draft.nodes}
            parent = 0
            for index, token in zip(verdict.path, verdict.emit, strict=False):
                assert nodes[index].parent == parent
                assert nodes[index].token == token.token
                parent = index


# ---- bad input -------------------------------------------------------------------------------


def test_an_empty_prompt_is_refused():
    with pytest.raises(ValueError, match="prompt is empty"):
        make_engine(MODEL, NoDrafter()).generate([])


def test_a_prompt_beyond_the_context_is_refused():
    model = tiny_model(max_position_embeddings=16)
    with pytest.raises(ContextLengthError, match="17 tokens; tiny takes 16"):
        make_engine(model, NoDrafter()).generate([1] * 17)


def test_a_token_outside_the_vocabulary_is_refused():
    with pytest.raises(ValueError, match="token 24 is not in the vocabulary of 0 to 23"):
        make_engine(MODEL, NoDrafter()).generate([1, 24])


def test_a_draft_beyond_its_budget_is_refused():
    class Greedy(AlwaysRight):
        def propose(self, root, budget):
            return Draft.from_lists([root, 1, 2, 3], [-1, 0, 0, 0], ["greedy"] * 3)

    engine = make_engine(MODEL, Greedy(FULL))
    with pytest.raises(ValueError, match="proposed 3 nodes; it was given a budget of 2"):
        list(engine.generate(PROMPT, GenerationParams(num_draft_tokens=2)))
