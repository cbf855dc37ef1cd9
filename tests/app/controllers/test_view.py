"""What the reader chooses to see: inks by name or in turn, figures where there is room."""

import pytest

from mlxspec_app.controllers.view import InkChoice, StatsChoice
from mlxspec_app.conversation.inks import INKS


def test_the_next_ink_follows_and_says_what_it_means():
    shown, told = [], []
    inks = InkChoice(shown.append, lambda message, **how: told.append((message, how["title"])))
    for _ in INKS:
        inks.choose()
    assert shown == [*INKS[1:], INKS[0]]
    assert told[0] == (INKS[1].meaning, f"ink: {INKS[1].name}")
    inks.choose("surprise")
    assert inks.ink.name == "surprise"


def test_an_ink_of_the_settings_is_used_without_a_word():
    shown, told = [], []
    inks = InkChoice(shown.append, lambda message, **how: told.append(message))
    inks.use("off")
    assert [ink.name for ink in shown] == ["off"]
    assert told == []


@pytest.mark.parametrize(("width", "is_shown"), [(99, False), (139, False), (140, True)])
def test_figures_stand_beside_the_text_unasked_where_there_is_plenty_of_room(width, is_shown):
    assert StatsChoice().is_shown(width) is is_shown


def test_figures_that_were_asked_for_go_and_come_back_with_the_room():
    stats = StatsChoice()
    stats.toggle(120)
    assert [stats.is_shown(width) for width in (120, 99, 100, 160)] == [True, False, True, True]
    stats.toggle(160)
    assert not stats.is_shown(160)
