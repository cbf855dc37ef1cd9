"""Bars, sparklines and worded figures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxspec.trace.events import GenerationStarted
from mlxspec.trace.stats import GenerationStats
from mlxspec_app.conversation.figures import Part, count, fitting, prob, reply_figures, seed_words
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.text.bars import bar, block, meter, resample, spark, split_cells

SHARES = st.floats(-1, 2, allow_nan=False)


@given(SHARES, st.integers(0, 40))
def test_a_bar_has_its_width(share, width):
    assert len(bar(share, width)) == width


@pytest.mark.parametrize(
    ("share", "drawn"),
    [(0, "    "), (1, "████"), (0.5, "██  "), (1 / 32, "▏   "), (9 / 32, "█▏  ")],
)
def test_a_bar_is_filled_to_an_eighth_of_a_cell(share, drawn):
    assert bar(share, 4) == drawn


@pytest.mark.parametrize(
    ("share", "drawn"), [(0, "░░░░"), (0.01, "▓░░░"), (0.5, "▓▓░░"), (9, "▓▓▓▓")]
)
def test_a_meter_shows_what_is_left(share, drawn):
    assert meter(share, 4) == drawn


@pytest.mark.parametrize(("share", "drawn"), [(0, " "), (0.001, "▏"), (0.5, "▌"), (1, "█")])
def test_a_block_never_hides_a_share(share, drawn):
    assert block(share) == drawn


@pytest.mark.parametrize(
    ("values", "drawn"), [([], ""), ([0, 5], "▁█"), ([0, 0, 5, 5], "▁█"), ([5], "█")]
)
def test_a_sparkline_shows_the_whole_series(values, drawn):
    assert spark(values, 2, 5) == drawn


@given(st.lists(st.floats(0, 10), max_size=50), st.integers(1, 20))
def test_resampling_keeps_within_the_values(values, width):
    sampled = resample(values, width)
    assert len(sampled) == min(len(values), width)
    assert all(min(values) <= value <= max(values) + 1e-9 for value in sampled)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=5), st.integers(0, 40))
def test_shares_fill_the_width(shares, width):
    assert sum(split_cells(shares, width)) == (width if sum(shares) > 0 else 0)


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0"), (999, "999"), (1931, "1.9k"), (32768, "33k")]
)
def test_counts_are_short(number, words):
    assert count(number) == words


@pytest.mark.parametrize(
    ("value", "words"), [(None, ""), (0.714, ".71"), (0.0, ".00"), (0.999, "1.00"), (1.0, "1.00")]
)
def test_probabilities_are_short(value, words):
    assert prob(value) == words


def test_the_least_telling_parts_go_first():
    parts = [Part("first"), Part("second", 2), Part("third", 1)]
    assert [p.text for p in fitting(parts, 17, 1)] == ["first", "third"]
    assert [p.text for p in fitting(parts, 3, 1)] == ["first"]


def make_reply(**changes):
    figures = {"generated_tokens": 400, "rounds": 100, "accepted": 290, "ttft_s": 0.417}
    times = {"prefill_s": 0.4, "total_s": 8.4, "drafted_at_depth": [100, 100, 100, 80, 20]}
    stats = GenerationStats(**(figures | times | changes))
    return Reply(stats=stats, started=GenerationStarted("t", "d", seed=7))


def test_the_figures_of_a_reply_are_worded_in_order():
    assert [part.text for part in reply_figures(make_reply())] == [
        "50.0 tokens/s",
        "TTFT 0.42 s",
        "400 tok",
        "3.90 tok/round",
        "72 % accepted",
    ]


def test_a_seed_is_shown_where_chance_had_a_part():
    reply = make_reply()
    assert seed_words(reply) == ""  # greedy: no seed gives another text
    reply.started = GenerationStarted("t", "d", lossless="sampled", seed=7)
    assert reply_figures(reply)[-1].text == seed_words(reply) == "seed 7"


def test_a_reply_without_drafts_has_no_acceptance():
    figures = [part.text for part in reply_figures(make_reply(rounds=0, accepted=0))]
    assert "no drafts" in figures
    assert not any("acc" in figure for figure in figures)


def test_a_reply_says_why_it_ended_early():
    reply = make_reply()
    reply.reason = "cancelled"
    assert reply_figures(reply)[-1].text == "stopped"
