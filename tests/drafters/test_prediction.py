"""Predictions: the place in the text after edits, the drafts, and replies that stay the same."""

from dataclasses import replace

import mlx.core as mx
import pytest

from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.prediction import Place, PredictionDrafter
from mlxspec.drafting.registry import HOST_DRAFTERS
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.params import DraftLimits, GenerationParams, SamplingParams
from mlxspec.trace.events import DraftProposed, GenerationFinished
from tests.support.adversaries import UniformChain
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.truth import Target

VOCAB = 24
MODEL = tiny_model(vocab_size=VOCAB)
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
GREEDY = SamplingParams()
LENGTH = 40


def letters(tokens):
    return "".join(chr(ord("a") + token) for token in tokens)


# ---- the place in the text ---------------------------------------------------------------------

FAR = "ab" + "." * 60


@pytest.mark.parametrize(
    ("prediction", "reply", "ahead"),
    [
        pytest.param("abcdef", "", "abcdef", id="the start"),
        pytest.param("abcdef", "abc", "def", id="it goes on"),
        pytest.param("abc", "abc", "", id="the end"),
        pytest.param(
            "the cat sat on the mat", "the cat sat_on", " the mat", id="a letter replaced"
        ),
        pytest.param("the cat sat on the mat", "the cat and sat", " on the mat", id="inserted"),
        pytest.param("the cat sat on the mat", "the sat", " on the mat", id="deleted"),
        pytest.param("the cat sat on the mat", "xxxxxxxxthe cat", " sat on the mat", id="before"),
        pytest.param(
            "-1 abc.-2 abc.-3 abc.", "-1 abc.-2 Xabc", ".-3 abc.", id="the next of equals"
        ),
        pytest.param("mk12345678k9", "mk1Zk", "9", id="one behind counts less than one ahead"),
        pytest.param("uvXT?uvT!", "uvT", "!", id="a longer match counts more than a nearer one"),
        pytest.param(FAR + "wxyz", "abZwxy", "z", id="far away, three tokens are needed"),
        pytest.param(FAR + "cd", "abZc", "", id="far away, one is too few"),
        pytest.param("ab....cd", "abZc", "d", id="near by, one is enough"),
        pytest.param("abcdef", "abZ", "", id="lost"),
        pytest.param("abcdef", "abZd", "ef", id="found again"),
    ],
)
def test_the_place_in_the_prediction_is_found_after_every_edit(prediction, reply, ahead):
    place = Place(tuple(prediction))
    for token in reply:
        place.read(token)
    assert "".join(place.ahead(99)) == ahead


def test_a_match_has_the_length_that_was_seen():
    place, lengths = Place(tuple("uvXT?uvT!")), []
    for token in "uvTZ":
        place.read(token)
        lengths.append(place.length)
    assert lengths == [Place(()).length + 1, Place(()).length + 2, 3, 0]


# ---- the drafts --------------------------------------------------------------------------------


def started(tokens, beside=None, sampling=GREEDY):
    drafter = PredictionDrafter(tokens, beside or NoDrafter())
    drafter.start(PROMPT, sampling, mx.random.key(0))
    return drafter


def follow(drafter, token):
    """Tell the drafter of a round that accepted nothing."""
    drafter.update(Round([0], [-1], [0], token))


def test_the_first_draft_is_the_begin_of_the_prediction():
    draft = started([5, 6, 7, 8]).propose(3, 3)
    assert draft.tree.tokens.tolist() == [3, 5, 6, 7]
    assert draft.tree.parents.tolist() == [-1, 0, 1, 2]
    assert draft.sources == ("prediction",) * 3
    assert draft.sampled_from is None
    assert sorted(draft.path_probs, reverse=True) == list(draft.path_probs)


def test_each_token_of_a_chain_makes_the_next_one_surer():
    probs = started(list(range(20))).propose(0, 20).node_probs.tolist()
    assert probs[0] < probs[10] < probs[19]


def test_a_limit_of_depth_is_kept():
    drafter = started([5, 6, 7, 8])
    drafter.limits = DraftLimits(depth=2)
    assert drafter.propose(3, 9).tree.n_nodes == 3


def test_a_prediction_that_fails_promises_less_and_less():
    drafter = started(list(range(20)) * 3)
    first = drafter.propose(0, 8).path_probs[0]
    for token in (4, 9, 2, 7, 12, 1, 15, 3, 18, 6):  # every time another place
        follow(drafter, token)
    later = drafter.propose(6, 8)
    assert first > 0.85
    assert later.tree.n_nodes == 1 or later.path_probs[0] < 0.2


def test_a_prediction_that_holds_promises_long_chains():
    drafter = started([token % 20 for token in range(200)])
    for token in range(60):
        follow(drafter, token % 20)
    assert drafter.propose(19, 31).path_probs[-1] > 0.5


class Counting:
    """A drafter that proposes one token and counts how often it is asked."""

    name = "counting"
    num_top_tokens = 0

    def __init__(self):
        self.asked = self.told = 0

    def start(self, prompt, sampling, key):
        pass

    def propose(self, root, budget):
        self.asked += 1
        return Draft.from_lists([root, 9], [-1, 0], [self.name])

    def update(self, round):
        self.told += 1


def test_the_other_drafter_drafts_where_the_place_is_lost_and_learns_always():
    beside = Counting()
    drafter = started([5, 6, 7, 8], beside)
    assert drafter.propose(3, 3).sources == ("prediction",) * 3
    follow(drafter, 11)
    assert drafter.propose(11, 3).sources == ("counting",)
    follow(drafter, 12)
    assert (beside.asked, beside.told) == (1, 2)


def test_the_other_drafter_drafts_where_it_gives_more():
    beside = Counting()
    drafter = started([5, 6, 7, 8], beside)
    for number in range(40):  # four tokens a round, while the prediction is lost
        drafter.propose(0, 4)
        drafter.update(Round([0, 11, 12, 13], [-1, 0, 1, 2], [0, 1, 2, 3], 14 + number % 5))
    drafter.update(Round([0], [-1], [0], 5))
    assert drafter.propose(5, 4).sources == ("counting",)


def test_the_name_says_what_drafts():
    assert PredictionDrafter([1], NoDrafter()).name == "prediction"
    assert PredictionDrafter([1], HOST_DRAFTERS["suffix"]()).name == "suffix+prediction"


# ---- replies -----------------------------------------------------------------------------------


def predictions(right):
    wrong = [(token + 7) % VOCAB for token in right]
    return {
        "right": right,
        "edited": [*right[:9], 2, *right[11:20], 4, 4, 4, *right[20:]],
        "wrong": wrong,
        "too short": right[:5],
        "nothing": [],
    }


@pytest.mark.parametrize(("kind", "drafter"), [("full", "none"), ("int8", "pool")])
def test_no_prediction_changes_a_greedy_reply(kind, drafter):
    right = Target(MODEL, kind).greedy(PROMPT, LENGTH)
    for name, tokens in predictions(right).items():
        engine = make_engine(MODEL, HOST_DRAFTERS[drafter](), kind)
        params = GenerationParams(LENGTH, prediction=letters(tokens), num_draft_tokens=8)
        assert emitted(engine.generate(PROMPT, params)) == right, name


def test_no_prediction_changes_a_sampled_reply_of_a_seed():
    sampling = SamplingParams(temperature=0.9, presence_penalty=0.5, top_k=9)
    params = GenerationParams(LENGTH, sampling=sampling, seed=4, num_draft_tokens=8)
    plain = emitted(make_engine(MODEL, None).generate(PROMPT, params))
    for name, tokens in predictions(plain).items():
        engine = make_engine(MODEL, HOST_DRAFTERS["pool"]())
        given = replace(params, prediction=letters(tokens))
        assert emitted(engine.generate(PROMPT, given)) == plain, name


def finished(engine, params):
    events = list(engine.generate(PROMPT, params))
    assert isinstance(events[-1], GenerationFinished)
    return events, events[-1].stats


def test_a_right_prediction_needs_a_forward_for_as_many_tokens_as_are_drafted():
    right = Target(MODEL, "full").greedy(PROMPT, LENGTH)
    params = GenerationParams(LENGTH, prediction=letters(right), num_draft_tokens=9)
    _, stats = finished(make_engine(MODEL, None), params)
    assert stats["target_forwards"] == LENGTH / 10


def test_accepted_and_rejected_tokens_are_counted():
    right = Target(MODEL, "full").greedy(PROMPT, LENGTH)
    edited = [*right[:12], (right[12] + 1) % VOCAB, *right[13:]]
    params = GenerationParams(LENGTH, prediction=letters(edited), num_draft_tokens=6)
    events, stats = finished(make_engine(MODEL, None), params)
    drafted = sum(len(event.nodes) for event in events if isinstance(event, DraftProposed))
    accepted = sum(len(event.path) for event in events if event.t == "verify")
    assert stats["accepted_prediction_tokens"] == accepted > 20
    assert stats["rejected_prediction_tokens"] == drafted - accepted > 0


def test_tokens_of_the_other_drafter_are_not_those_of_the_prediction():
    engine = make_engine(MODEL, UniformChain(VOCAB))
    params = GenerationParams(LENGTH, num_draft_tokens=4, sampling=SamplingParams(temperature=1.0))
    _, stats = finished(engine, params)
    assert stats["drafted"] > 0
    assert stats["accepted_prediction_tokens"] == stats["rejected_prediction_tokens"] == 0


def test_every_prompt_of_a_batch_has_its_own_prediction():
    prompts = [PROMPT, PROMPT[::-1], [2, 2, 5]]
    rights = [Target(MODEL, "full").greedy(prompt, LENGTH) for prompt in prompts]
    texts = [letters(rights[0]), None, letters(rights[0])]
    params = [GenerationParams(LENGTH, prediction=text, num_draft_tokens=6) for text in texts]
    engine = make_engine(MODEL, HOST_DRAFTERS["none"]())
    replies = list(engine.generate_batch(prompts, params, batch_size=2))
    assert [list(reply.tokens) for reply in replies] == rights
    counts = [reply.stats["accepted_prediction_tokens"] for reply in replies]
    assert counts[0] > 20
    assert counts[1] == 0


def test_a_second_reply_begins_at_the_first_predicted_token_again():
    drafter = started([5, 6, 7, 8])
    follow(drafter, 5)
    follow(drafter, 6)
    drafter.start(PROMPT, GREEDY, mx.random.key(1))
    assert drafter.propose(3, 2).tree.tokens.tolist() == [3, 5, 6]
