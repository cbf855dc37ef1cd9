"""What another number of drafted tokens would have given; every expectation computed by hand."""

import pytest

from mlxspec.trace.events import (
    CostMeasured,
    DraftNode,
    DraftProposed,
    DraftVerified,
    EmittedToken,
    GenerationStarted,
    PlainDecoded,
)
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.rounds import Round
from mlxspec_app.playback.what_if import (
    MOST_DRAFTED,
    Expectation,
    Position,
    best,
    drafting_ms,
    expectations,
    forward_costs,
    outlooks,
    positions,
)
from tests.support.race_runs import decoded_plainly
from tests.traces import make_fake


def chain(length, accepted, *, ms=10.0, draft_ms=1.0):
    """A round whose chain of so many tokens lost all but the first `accepted`."""
    nodes = tuple(DraftNode(i, i - 1, i, "x", 0.9, "s") for i in range(1, length + 1))
    emit = (EmittedToken(0, "x", "bonus"),)
    verdict = DraftVerified(1, 0.0, tuple(range(1, accepted + 1)), emit, ms, 0, 0)
    return Round(DraftProposed(1, 0.0, 0, nodes, draft_ms), verdict)


def plain(ms):
    return Round(None, PlainDecoded(1, 0.0, (EmittedToken(0, "x", "plain"),), ms, 0))


def test_counts_a_place_only_behind_accepted_ones():
    rounds = [chain(3, 0), chain(3, 1), chain(3, 3), chain(1, 1), plain(5.0)]
    assert positions(rounds) == [Position(4, 3), Position(2, 1), Position(1, 1)]


def test_of_a_tree_only_the_first_choice_counts():
    nodes = (
        DraftNode(1, 0, 7, "x", 0.2, "s"),
        DraftNode(2, 0, 8, "x", 0.6, "s"),  # the first choice, though it was listed second
        DraftNode(3, 1, 9, "x", 0.5, "s"),
        DraftNode(4, 2, 9, "x", 0.5, "s"),
    )
    emit = (EmittedToken(0, "x", "bonus"),)

    def judged(*path):
        verdict = DraftVerified(1, 0.0, path, emit, 1.0, 0, 0)
        return positions([Round(DraftProposed(1, 0.0, 0, nodes, 1.0), verdict)])

    assert judged(1, 3) == [Position(1, 0)]
    assert judged(2, 4) == [Position(1, 1), Position(1, 1)]
    assert judged(2) == [Position(1, 1), Position(1, 0)]


def test_no_more_places_are_counted_than_are_shown():
    assert len(positions([chain(40, 40)])) == MOST_DRAFTED
    assert positions([plain(5.0)]) == []


def test_the_cost_of_a_width_is_the_median_of_its_forwards():
    rounds = [chain(3, 0, ms=ms) for ms in (8.0, 9.0, 50.0)] + [plain(4.0)] * 3
    assert forward_costs(rounds) == {4: 9.0, 1: 4.0}


def test_a_width_that_was_hardly_ever_used_is_not_measured():
    assert forward_costs([chain(3, 0)] * 2 + [chain(1, 0)] * 3) == {2: 10.0}


def test_drafting_costs_its_mean():
    assert drafting_ms([chain(3, 0, draft_ms=1.0), chain(3, 0, draft_ms=3.0), plain(9.0)]) == 2.0
    assert drafting_ms([plain(9.0)]) == 0.0


def test_tokens_per_round_add_up_the_chances_to_get_so_far():
    places = [Position(4, 3), Position(4, 2), Position(1, 0)]
    tokens = [one.tokens for one in expectations(places, {})]
    assert tokens == [1 + 3 / 4, 1 + 3 / 4 + 3 / 8, 1 + 3 / 4 + 3 / 8]


def test_speed_is_tokens_over_the_time_of_a_round():
    places = [Position(2, 1), Position(2, 1)]
    first, second = expectations(places, {2: 9.0, 3: 24.0}, draft_ms=1.0)
    assert (first.round_ms, first.tps) == (10.0, pytest.approx(1.5 / 0.010))
    assert (second.round_ms, second.tps) == (25.0, pytest.approx(1.75 / 0.025))
    assert best([first, second]) == first


def test_a_width_between_two_measured_ones_lies_on_a_line_and_is_marked():
    places = [Position(1, 1)] * 4
    found = expectations(places, {2: 10.0, 4: 20.0})
    assert [one.round_ms for one in found] == [10.0, 15.0, 20.0, None]
    assert [one.is_between for one in found[:3]] == [False, True, False]


def test_without_a_known_cost_there_is_no_speed_and_no_best():
    found = expectations([Position(1, 1)], {})
    assert found == [Expectation(1, 2.0, None, True)]
    assert found[0].tps is None
    assert best(found) is None


def test_of_equally_fast_ones_the_shorter_is_best():
    assert best([Expectation(2, 2.0, 10.0), Expectation(4, 4.0, 20.0)]).k == 2


def test_a_chain_as_long_as_the_recorded_ones_gives_what_was_recorded():
    rounds = [chain(3, accepted) for accepted in (0, 1, 3, 3, 2, 1)]
    measured = 1 + sum(len(round_.verdict.path) for round_ in rounds) / len(rounds)
    assert expectations(positions(rounds), {})[-1].tokens == pytest.approx(measured)


@pytest.mark.parametrize("name", make_fake.TRACES)
def test_every_recording_can_be_asked(name):
    events = make_fake.TRACES[name]()
    for recorded in (events, decoded_plainly(events)):
        replies = [m for m in fold(recorded).messages if hasattr(m, "rounds")]
        rounds = [round_ for reply in replies for round_ in reply.rounds]
        for one in expectations(positions(rounds), forward_costs(rounds)):
            assert 1 <= one.tokens <= one.k + 1


def reply_of(*rounds, **about):
    reply = Reply()
    reply.rounds.extend(rounds)
    reply.started = GenerationStarted("t", "d", **about)
    return reply


def test_runs_of_one_setup_share_what_forwards_cost():
    drafted, undrafted = reply_of(*[chain(3, 3)] * 3), reply_of(*[plain(4.0)] * 3)
    alike, none = outlooks([[drafted], [undrafted]])
    assert [one.round_ms for one in alike.expected] == [7.0, 9.0, 11.0]
    assert none.expected == ()


def test_runs_of_other_machines_do_not():
    other = reply_of(*[plain(4.0)] * 3, device="another")
    outlook, _ = outlooks([[reply_of(*[chain(3, 3)] * 3)], [other]])
    assert [one.round_ms for one in outlook.expected] == [None, None, 11.0]


def test_a_cost_that_was_measured_on_purpose_comes_before_what_forwards_took():
    reply = reply_of(*[chain(3, 3)] * 3)
    reply.cost = CostMeasured(0.0, 100, (1, 2, 4), (4.0, 5.0, 9.0))
    (outlook,) = outlooks([[reply]])
    assert [one.round_ms for one in outlook.expected] == [6.0, 8.0, 10.0]


def test_a_reply_that_repeats_itself_is_left_out():
    usual, loop = reply_of(*[chain(3, 1)] * 4), reply_of(*[chain(3, 3)] * 9)
    loop.reason = "repeating"
    assert outlooks([[usual, loop]]) == outlooks([[usual]])
    assert outlooks([[loop]])[0].expected
