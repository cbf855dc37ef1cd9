"""Bars, sparklines, and figures and ages in words."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxspec.trace.events import GenerationStarted
from mlxspec.trace.stats import GenerationStats
from mlxspec_app.conversation.figures import Part, count, fitting, prob, reply_figures, seed_words
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.text.bars import bar, block, meter, spark, split_cells
from mlxspec_app.text.chat_labels import ago

NOW = datetime(2026, 3, 12, 15, 30).timestamp()
MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("draw", "share", "drawn"),
    [
        *((bar, share, "    ") for share in (-1, 0)),  # to an eighth of a cell
        *((bar, share, "████") for share in (1, 2)),
        (bar, 0.5, "██  "),
        (bar, 1 / 32, "▏   "),
        (bar, 9 / 32, "█▏  "),
        (meter, 0, "░░░░"),
        (meter, 0.01, "▓░░░"),
        (meter, 0.5, "▓▓░░"),
        (meter, 9, "▓▓▓▓"),
    ],
)
def test_a_share_is_drawn_as_a_bar(draw, share, drawn):
    assert draw(share, 4) == drawn


@pytest.mark.parametrize(("share", "drawn"), [(0, " "), (0.001, "▏"), (0.5, "▌"), (1, "█")])
def test_a_block_never_hides_a_share(share, drawn):
    assert block(share) == drawn


@pytest.mark.parametrize(
    ("values", "drawn"), [([], ""), ([0, 5], "▁█"), ([0, 0, 5, 5], "▁█"), ([5], "█")]
)
def test_a_sparkline_shows_the_whole_series(values, drawn):
    assert spark(values, 2, 5) == drawn


@given(st.lists(st.floats(0, 100), min_size=1, max_size=5), st.integers(0, 40))
def test_shares_fill_the_width(shares, width):
    assert sum(split_cells(shares, width)) == (width if sum(shares) > 0 else 0)


def aged(seconds):
    return ago(NOW - seconds, NOW)


@pytest.mark.parametrize(
    ("words", "number", "said"),
    [
        (count, 0, "0"),
        (count, 999, "999"),
        (count, 1931, "1.9k"),
        (count, 32768, "33k"),
        (prob, None, ""),
        (prob, 0.714, ".71"),
        (prob, 0.0, ".00"),
        (prob, 0.999, "1.00"),
        (prob, 1.0, "1.00"),
        *((aged, age, "just now") for age in (-5, 59)),
        (aged, 60, "1 minute ago"),
        (aged, 59 * MINUTE, "59 minutes ago"),
        (aged, HOUR, "1 hour ago"),
        (aged, 23 * HOUR, "23 hours ago"),
        (aged, 25 * HOUR, "yesterday"),
        (aged, 2 * DAY, "2 days ago"),
        (aged, 6 * DAY, "6 days ago"),
        (aged, 7 * DAY, "5 Mar"),
        (aged, 71 * DAY, "31 Dec 2025"),
    ],
)
def test_counts_probabilities_and_ages_are_said_in_few_characters(words, number, said):
    assert words(number) == said


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
    speed = ["50.0 tokens/s", "TTFT 0.42 s", "400 tok"]
    reply = make_reply()
    assert [p.text for p in reply_figures(reply)] == [*speed, "3.90 tok/round", "72 % accepted"]
    plain = make_reply(rounds=0, accepted=0)
    assert [p.text for p in reply_figures(plain)] == [*speed, "no drafts"]
    reply.reason = "cancelled"
    assert reply_figures(reply)[-1].text == "stopped"


def test_a_seed_is_shown_where_chance_had_a_part():
    reply = make_reply()
    assert seed_words(reply) == ""  # greedy: no seed gives another text
    reply.started = GenerationStarted("t", "d", lossless="sampled", seed=7)
    assert reply_figures(reply)[-1].text == seed_words(reply) == "seed 7"
