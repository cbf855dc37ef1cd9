"""What the reader chooses to see: views by name or in turn, figures where there is room."""

import pytest

from mlxspec_app.conversation.views import CALM, INKS, VIEWS, XRAY
from mlxspec_app.screens.conversation.panels import shows_stats
from mlxspec_app.screens.conversation.screen import ConversationScreen
from tests.support.fake_page import FakeApp
from tests.support.scripted_session import ScriptedSession


class Viewer(ConversationScreen):
    """A screen that notes its views."""

    app = FakeApp()

    def __init__(self):
        super().__init__(ScriptedSession())
        self.app.changes.clear()
        self.seen = []

    def use_view(self, view, ink):
        self.view, self.ink = view, ink
        self.seen.append((view, ink.name))


@pytest.fixture
def viewer():
    return Viewer()


def test_a_chat_begins_with_the_tint_and_one_key_goes_to_the_x_ray(viewer):
    assert viewer.view is CALM
    for _ in VIEWS:
        viewer.action_view()
    viewer.action_view("calm")
    assert [view for view, _ in viewer.seen] == [XRAY, CALM, CALM]
    assert viewer.app.changes == [("view", view.name) for view, _ in viewer.seen]


def test_an_ink_turns_the_x_ray_on_and_the_next_one_follows_there(viewer):
    for name in ("", "", "surprise"):
        viewer.action_ink(name)
    inks = (INKS[0].name, INKS[1].name, "surprise")
    assert viewer.seen == [(XRAY, name) for name in inks]
    assert viewer.app.changes == []


def test_a_screen_with_a_view_of_its_own_stores_none(viewer):
    viewer.FIRST_VIEW = XRAY
    viewer.action_view("calm")
    assert viewer.app.changes == []


@pytest.mark.parametrize(
    ("choice", "view", "width", "is_shown"),
    [
        (None, XRAY, 139, False),
        (None, XRAY, 140, True),
        (None, CALM, 200, False),
        (True, CALM, 100, True),
        (True, XRAY, 99, True),
        (False, XRAY, 200, False),
    ],
)
def test_figures_stand_beside_the_text_where_there_is_room_or_they_were_asked_for(
    choice, view, width, is_shown
):
    assert shows_stats(choice, view, width) is is_shown
