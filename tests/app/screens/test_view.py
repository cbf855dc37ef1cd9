"""What the reader chooses to see: views by name or in turn, figures where there is room."""

import pytest

from mlxspec_app.conversation.inks import INKS
from mlxspec_app.conversation.views import CALM, COLOURS, VIEWS, XRAY
from mlxspec_app.screens.conversation.panels import StatsChoice
from mlxspec_app.screens.conversation.views import ViewChoice


@pytest.fixture
def shown():
    return []


@pytest.fixture
def kept():
    return []


@pytest.fixture
def views(shown, kept):
    return ViewChoice(lambda *both: shown.append(both), lambda *both: kept.append(both))


def test_a_chat_begins_with_the_tint_and_one_key_goes_to_the_x_ray(views, shown, kept):
    assert views.view is COLOURS
    for _ in VIEWS:
        views.choose()
    assert [view for view, _ in shown] == [XRAY, CALM, COLOURS]
    assert kept == [("view", "xray"), ("view", "calm"), ("view", "colours")]


def test_a_view_is_chosen_by_its_name(views, shown):
    views.choose("calm")
    assert shown == [(CALM, INKS[0])]


def test_an_ink_turns_the_x_ray_on_and_the_next_one_follows_there(views, shown, kept):
    views.choose_ink()
    views.choose_ink()
    views.choose_ink("surprise")
    assert [(view, ink.name) for view, ink in shown] == [
        (XRAY, INKS[0].name),
        (XRAY, INKS[1].name),
        (XRAY, "surprise"),
    ]
    assert kept == []


def test_what_the_settings_say_is_used_without_being_kept_again(views, shown, kept):
    views.use(CALM, INKS[2])
    assert shown == [(CALM, INKS[2])]
    assert kept == []


@pytest.mark.parametrize("view", [CALM, COLOURS])
def test_outside_the_x_ray_no_figures_stand_beside_the_text_unasked(view):
    stats = StatsChoice(view)
    assert not stats.is_shown(200)
    stats.toggle(200)
    assert stats.is_shown(200)


@pytest.mark.parametrize(("width", "is_shown"), [(99, False), (139, False), (140, True)])
def test_figures_stand_beside_the_text_unasked_where_there_is_plenty_of_room(width, is_shown):
    assert StatsChoice().is_shown(width) is is_shown


def test_figures_that_were_asked_for_go_and_come_back_with_the_room():
    stats = StatsChoice()
    stats.toggle(120)
    assert [stats.is_shown(width) for width in (120, 99, 100, 160)] == [True, False, True, True]
    stats.toggle(160)
    assert not stats.is_shown(160)
