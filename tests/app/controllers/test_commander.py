"""Commands: what a page can have done, and what it is told where that cannot be."""

import pytest

from mlxspec_app.controllers.commander import Commander
from tests.support.fake_page import FakePage


@pytest.fixture
def page():
    return FakePage()


@pytest.fixture
def done():
    return []


@pytest.fixture
def commander(page, done):
    names = ("help", "ink", "adjust", "stop")
    actions = {name: lambda *given, name=name: done.append((name, *given)) for name in names}
    return Commander(page, actions)


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
def test_a_command_reaches_its_action_with_what_it_was_given(commander, done, line, action):
    assert commander.enter(line)
    assert done == [action]


def test_a_message_is_no_command(commander, page, done):
    assert not commander.enter("hello")
    assert (done, page.told) == ([], [])


def test_what_the_page_cannot_do_is_said(commander, page, done):
    page.impossible = {"stop"}
    for line in ("/fork", "/stop"):
        assert commander.enter(line)
    assert page.told == [f"/{name} cannot be used here" for name in ("fork", "stop")]
    assert done == []


def test_an_unknown_command_is_said_and_counts_as_one(commander, page):
    assert commander.enter("/hlep")
    assert "did you mean /help" in page.told[0]
    assert page.refused == ["/hlep"]


def test_a_command_that_lacks_its_argument_is_offered_to_be_typed_on(commander, page, done):
    assert commander.enter("/rename", is_complete=False)
    assert (page.offered, done) == (["/rename "], [])


def test_only_commands_with_an_action_are_known(commander):
    assert {command.action for command in commander.commands} == {"help", "ink", "adjust", "stop"}
    assert commander.can("stop")
    assert not commander.can("fork")
