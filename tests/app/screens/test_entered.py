"""Commands: what a page can have done, and what it is told where that cannot be."""

import pytest

from mlxspec_app.screens.conversation.screen import ConversationScreen
from tests.support.scripted_session import ScriptedSession


class Page(ConversationScreen):
    """A screen that notes what its commands do."""

    def __init__(self):
        super().__init__(ScriptedSession())
        self.done, self.told, self.offered, self.refused, self.impossible = [], [], [], [], ()

    def action_help(self):
        self.done.append(("help",))

    def action_ink(self, name=""):
        self.done.append(("ink", name))

    def action_adjust(self, name, value):
        self.done.append(("adjust", name, value))

    def action_stop(self):
        self.done.append(("stop",))

    def check_action(self, action, parameters):
        return action not in self.impossible

    def notify(self, message, **_):
        self.told.append(message)

    def offer(self, line):
        self.offered.append(line)

    def refuse(self, line, reason):
        self.refused.append((line, reason))


@pytest.fixture
def page():
    return Page()


@pytest.mark.parametrize(
    ("line", "action"),
    [
        ("/help", ("help",)),
        ("/ink", ("ink", "")),
        ("/ink off", ("ink", "off")),
        ("/temp 0.5", ("adjust", "temp", "0.5")),
        ("/temp", ("adjust", "temp", "")),
    ],
)
def test_a_command_reaches_its_action_with_what_it_was_given(page, line, action):
    assert page.enter(line)
    assert page.done == [action]


def test_a_message_is_no_command(page):
    assert not page.enter("hello")
    assert (page.done, page.told) == ([], [])


def test_what_the_page_cannot_do_is_said(page):
    page.impossible = {"stop"}
    for line in ("/fork", "/stop"):
        assert page.enter(line)
    assert page.told == [f"/{name} cannot be used here" for name in ("fork", "stop")]
    assert page.done == []


def test_an_unknown_command_is_said_and_counts_as_one(page):
    assert page.enter("/hlep")
    ((line, reason),) = page.refused
    assert line == "/hlep"
    assert "did you mean /help" in reason


def test_a_command_that_lacks_its_argument_is_offered_to_be_typed_on(page):
    assert page.enter("/rename", is_complete=False)
    assert (page.offered, page.done) == (["/rename "], [])
