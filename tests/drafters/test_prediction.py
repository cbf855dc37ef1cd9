"""Predictions: the place in the text after edits, the drafts, and replies that stay the same."""

import mlx.core as mx
import pytest

from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.prediction.drafter import PredictionDrafter, predicting
from mlxspec.drafters.prediction.place import Place
from mlxspec.drafting.registry import HOST_DRAFTERS
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.params import DraftLimits, GenerationParams, SamplingParams
from mlxspec.trace.events import DraftProposed, GenerationFinished
from tests.support.adversaries import UniformChain
from tests.support.pairwise import each_value
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.truth import Target

VOCAB = 24
MODEL = tiny_model(vocab_size=VOCAB)
KINDS = ("full", "rotating", "int8", "int4")
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
GREEDY = SamplingParams()
LENGTH = 40


def letters(tokens):
    return "".join(chr(ord("a") + token) for token in tokens)


def place_after(prediction, reply, begin_length=4):
    place = Place(list(prediction), begin_length)
    for token in reply:
        place.read(token)
    return place


# ---- the place in the text ---------------------------------------------------------------------


def test_a_reply_begins_where_the_prediction_does():
    place = Place("abcdef", 4)
    assert (place.ahead(3), place.length) == (("a", "b", "c"), 4)


def test_the_place_goes_on_with_every_token_that_was_predicted():
    place = place_after("abcdef", "abc")
    assert (place.ahead(9), place.length) == (("d", "e", "f"), 7)


@pytest.mark.parametrize(
    ("reply", "ahead"),
    [
        ("the cat sat_on", " the mat"),  # a letter replaced, two letters later
        ("the cat and sat", " on the mat"),  # inserted
        ("the sat", " on the mat"),  # deleted
        ("xxxxxxxxthe cat", " sat on the mat"),  # before the first
    ],
)
def test_after_an_edit_the_place_is_found_again(reply, ahead):
    assert "".join(place_after("the cat sat on the mat", reply).ahead(99)) == ahead


def test_of_equal_places_the_next_one_ahead_counts():
    text = "-1 abc.-2 abc.-3 abc."
    assert "".join(place_after(text, "-1 abc.-2 Xabc").ahead(3)) == ".-3"


def test_a_place_behind_counts_less_than_any_ahead():
    assert "".join(place_after("mk12345678k9", "mk1Zk").ahead(1)) == "9"


def test_a_longer_match_counts_more_than_a_nearer_place():
    place = place_after("uvXT?uvT!", "uvT")
    assert "".join(place.ahead(1)) == "!"
    assert place.length == 3


def test_a_place_far_away_is_found_by_three_tokens():
    assert "".join(place_after("ab" + "." * 60 + "wxyz", "abZwxy").ahead(2)) == "z"


def test_without_a_common_token_the_place_is_lost_until_one_comes():
    place = place_after("abcdef", "abZ")
    assert (place.index, place.length, place.ahead(3)) == (None, 0, ())
    place.read("d")
    assert place.ahead(3) == ("e", "f")


def test_a_single_token_is_enough_near_the_lost_place_only():
    far = "ab" + "." * 60 + "cd"
    assert place_after(far, "abZc").index is None
    assert "".join(place_after("ab....cd", "abZc").ahead(1)) == "d"


def test_the_end_of_the_prediction_predicts_nothing():
    assert place_after("abc", "abc").ahead(5) == ()


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
    suffix = HOST_DRAFTERS["suffix"]()
    assert predicting(suffix, []) is suffix


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


@each_value(kind=KINDS, drafter=["none", "pool"])
def test_no_prediction_changes_a_greedy_reply(drafter, kind):
    right = Target(MODEL, kind).greedy(PROMPT, LENGTH)
    for name, tokens in predictions(right).items():
        engine = make_engine(MODEL, HOST_DRAFTERS[drafter](), kind)
        params = GenerationParams(LENGTH, prediction=letters(tokens), num_draft_tokens=8)
        assert emitted(engine.generate(PROMPT, params)) == right, name


@pytest.mark.parametrize("drafter", ["none", "pool"])
@pytest.mark.parametrize("sampling", [{}, {"top_p": 0.8}, {"presence_penalty": 0.5, "top_k": 9}])
def test_no_prediction_changes_a_sampled_reply_of_a_seed(drafter, sampling):
    sampling = SamplingParams(temperature=0.9, **sampling)
    params = GenerationParams(LENGTH, sampling=sampling, seed=4, num_draft_tokens=8)
    plain = emitted(make_engine(MODEL, None).generate(PROMPT, params))
    for name, tokens in predictions(plain).items():
        given = GenerationParams(
            LENGTH, sampling=sampling, seed=4, num_draft_tokens=8, prediction=letters(tokens)
        )
        engine = make_engine(MODEL, HOST_DRAFTERS[drafter]())
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


def test_every_prompt_of_a_batch_has_its_own_prediction(forwards):
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


def test_a_reply_beside_another_keeps_its_prediction():
    right = Target(MODEL, "full").greedy(PROMPT, LENGTH)
    params = GenerationParams(LENGTH, prediction=letters(right), num_draft_tokens=6)
    engine = make_engine(MODEL, HOST_DRAFTERS["suffix"]())
    first = engine.generate(PROMPT, params)
    begun = [next(first) for _ in range(6)]
    other = emitted(engine.generate(PROMPT[::-1], GenerationParams(12)))
    assert emitted([*begun, *first]) == right
    assert other == Target(MODEL, "full").greedy(PROMPT[::-1], 12)


def test_a_prediction_that_is_no_text_is_refused():
    with pytest.raises(ValueError, match="prediction must be a text; got 5"):
        GenerationParams(prediction=5)


def test_a_prediction_that_is_not_utf8_is_refused_before_the_reply():
    from mlxspec.tokenizer import Tokenizer

    class Strict:
        encode = Tokenizer.encode

    engine = make_engine(MODEL, None)
    engine.tokenizer.encode = Strict().encode
    with pytest.raises(ValueError, match="not UTF-8"):
        engine.generate(PROMPT, GenerationParams(prediction="a\udcff"))


def test_a_second_reply_begins_at_the_first_predicted_token_again():
    drafter = started([5, 6, 7, 8])
    follow(drafter, 5)
    follow(drafter, 6)
    drafter.start(PROMPT, GREEDY, mx.random.key(1))
    assert drafter.propose(3, 2).tree.tokens.tolist() == [3, 5, 6]
