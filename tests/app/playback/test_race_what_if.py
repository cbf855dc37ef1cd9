"""The what-if table of a race: what it shows, and the keys that open and move it."""

from textual.content import Content

from mlxspec_app.playback.what_if import Expectation, Outlook
from mlxspec_app.widgets.playback.what_if_panel import WhatIfPanel
from mlxspec_app.widgets.playback.what_if_rows import what_if_rows
from tests.support.race_driver import PLAIN, TREE, racing

OUTLOOK = Outlook((Expectation(1, 1.5, 10.0), Expectation(2, 2.0, 12.5, True)), 120.0)


def lines(outlook=OUTLOOK, k=1, width=120):
    return [row.plain.rstrip() for row in what_if_rows([("A", outlook)], k, width)]


def test_a_column_for_each_k_and_the_chosen_one_in_words():
    head, tokens, ms, tps, sentence = lines(width=30)
    assert head.split() == ["drafted", "k", "[1]", "2", "3"]
    assert tokens.split() == ["A", "tok/rd", "1.50", "2.00", "·"]
    assert ms.split() == ["ms/rd", "10", "~12", "·"]
    assert tps.split() == ["tokens/s", "150.0", "160.0*", "·"]
    assert sentence == "A, k = 1: 150.0 tokens/s, 1.50 tokens in 10 ms; it ran at 120.0 tokens/s"


def test_the_columns_around_the_chosen_k_are_shown_where_there_is_little_room():
    assert lines(k=16, width=40)[0].split()[2:] == ["12", "13", "14", "15", "[16]"]
    assert lines(k=9, width=28)[0].split()[2:] == ["8", "[9]", "10"]


def test_a_k_that_was_never_judged_is_said_to_be():
    assert lines(k=3)[-1] == "A, k = 3: this trace verified no chain of more than 2"


def test_without_costs_there_are_tokens_alone():
    found = lines(Outlook((Expectation(1, 1.5),), 120.0))
    assert found[-1].startswith("A, k = 1: 1.50 tokens a round; no width around this one")
    assert "*" not in "".join(found)


def test_a_run_without_drafts_leads_to_expect_nothing():
    assert lines(Outlook((), 9.0))[-1].startswith("A has no drafts")


def test_the_chosen_and_the_best_column_are_styled():
    row: Content = what_if_rows([("A", OUTLOOK)], 1, 120)[3]
    styles = {row.plain[span.start : span.end].strip(): str(span.style) for span in row.spans}
    assert "reverse" in styles["150.0"]
    assert "spec-accepted" in styles["160.0*"]


async def test_w_opens_the_table_and_arrows_choose_another_k():
    async with racing(TREE, PLAIN, size=(120, 40)) as driver:
        panel = driver.pilot.app.screen.query_one(WhatIfPanel)
        await driver.press("up")
        assert "expected from these traces" not in driver.shown
        await driver.press("w")
        assert "expected from these traces, if drafts were chains of k" in driver.shown
        chosen = panel._k
        await driver.press("up")
        assert f"[{chosen + 1}]" in driver.shown
        await driver.press("down", "down", *["down"] * 20)
        assert "[1]" in driver.shown
        await driver.press("w")
        assert "expected from these traces" not in driver.shown
