"""Commands: from a line to what it does, in the prompt and in the palette."""

import pytest

from mlxspec.trace.difference import Difference, Proof
from mlxspec_app.app import MlxspecApp
from mlxspec_app.commands import COMMANDS, CommandError, CommandProvider, matching, parse
from mlxspec_app.conversation.events import ProofFinished
from mlxspec_app.conversation.orders import Prove
from mlxspec_app.screens.chat.screen import ChatScreen
from mlxspec_app.themes import DAY, THEMES
from mlxspec_app.widgets.chat.command_hints import CommandHints
from mlxspec_app.widgets.chat.prompt import Prompt
from mlxspec_app.widgets.draft.tree_panel import TreePanel
from tests.support.app_driver import chat, replay, running
from tests.support.scripted_session import ScriptedSession
from tests.traces import make_fake


@pytest.mark.parametrize(
    ("line", "name", "argument"),
    [
        ("/help", "help", ""),
        ("  /ink  ", "ink", ""),
        ("/ink confidence", "ink", "confidence"),
        ("/temp 0.7", "temp", "0.7"),
        ("/clear", "new", ""),
    ],
)
def test_a_line_gives_a_command(line, name, argument):
    command, typed = parse(line)
    assert (command.name, typed) == (name, argument)


@pytest.mark.parametrize(
    "line",
    ["hello", "", "/usr/bin holds programs", "/usr/bin", "/3 of it", "a /help", "//"],
)
def test_anything_else_is_a_message(line):
    assert parse(line) is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/hlep", "did you mean /help"),
        ("/zzz", "/help lists them"),
        ("/ink red", "one of provenance, .* got 'red'"),
        ("/quit now", "takes no argument; got 'now'"),
    ],
)
def test_a_command_that_cannot_be_taken_says_why(line, message):
    with pytest.raises(CommandError, match=message):
        parse(line)


def test_names_are_not_given_twice():
    names = [name for command in COMMANDS for name in (command.name, *command.aliases)]
    assert len(set(names)) == len(names)


def test_every_command_has_its_action():
    screen = ChatScreen(ScriptedSession())
    assert [c.name for c in COMMANDS if not hasattr(screen, f"action_{c.action}")] == []


def test_what_is_typed_so_far_finds_the_commands():
    assert [command.name for command in matching("/st")] == ["stop", "stats", "stop_repeats"]
    assert list(matching("/")) == list(COMMANDS)
    assert not matching("/stats now")
    assert not matching("st")


async def test_inks_and_themes_are_chosen_by_name():
    async with chat() as driver:
        await driver.say("/ink surprise")
        await driver.say("/theme day")
        assert driver.screen.ink.name == "surprise"
        assert driver.app.theme == "day"
        await driver.say("/theme")
        assert driver.app.theme == THEMES[THEMES.index(DAY) + 1].name
        await driver.say(f"/theme {THEMES[-1].name}")
        await driver.say("/theme")
        assert driver.app.theme == THEMES[0].name


async def test_a_proof_stands_below_its_reply():
    session = ScriptedSession(*make_fake.tree())
    async with running(session) as driver:
        await driver.say("/verify")
        assert session.orders[-1] == Prove()
        different = Proof(7, 2, Difference(2, 1, 2, 0.5, 0.0, 1.0, 1.5), "x", "y")
        for proof, words in (
            (Proof(7, 7), "= identical to plain decoding: 7 of 7 tokens"),
            (different, "≠ the same for 2 tokens of 7"),
        ):
            session.news.append(ProofFinished(proof))
            await driver.settle()
            assert words in driver.shown


async def test_the_last_reply_and_its_code_are_copied(monkeypatch):
    copied = []
    monkeypatch.setattr("shutil.which", lambda name: None)  # a Mac's own clipboard comes first
    monkeypatch.setattr(MlxspecApp, "copy_to_clipboard", lambda app, text: copied.append(text))
    async with chat() as driver:
        await driver.say("/copy")
        await driver.say("/code")
        await driver.say("hello")
        await driver.wait(1000)
        await driver.say("/copy")
        assert copied == [driver.screen.state.reply.text]


async def test_the_palette_offers_every_command():
    async with chat() as driver:
        await driver.press("ctrl+p")
        await driver.press(*"tree")
        await driver.pilot.pause(0.3)
        await driver.press("enter")
        await driver.pilot.pause(0.1)
        assert driver.screen.query_one(TreePanel).has_class("-shown")


async def test_a_replay_takes_the_commands_that_its_help_lists():
    async with replay(make_fake.chat(), size=(100, 70)) as driver:
        screen = driver.screen
        assert screen.enter("/ink off")
        assert screen.ink.name == "off"
        screen.enter("/temp", is_complete=False)
        await driver.settle()
        assert "/temp cannot be typed here" in driver.shown
        screen.app.clear_notifications()
        await driver.press("f1")
        assert "/ink" in driver.shown
        assert "/verify" not in driver.shown


async def test_f6_steps_through_the_conversation_and_leads_back():
    async with chat() as driver:
        await driver.press("f6")
        assert driver.screen.NOTE == ""
        await driver.say("hello")
        await driver.press("f6")
        assert driver.screen.NOTE == "replay, detached"
        last = driver.screen.state.reply.text
        await driver.press("left_square_bracket", "left_square_bracket")
        assert len(driver.screen.state.reply.text) < len(last)
        await driver.press("f6")
        assert driver.screen.state.reply.text == last


async def test_a_recording_says_what_it_cannot_do():
    async with chat() as driver:
        await driver.say("/retry")
        assert "/retry cannot be used here" in driver.shown
        await driver.say("/temp 0.7")
        assert "this is a recording" in driver.shown
        prompt = driver.screen.query_one(Prompt)
        prompt.clear()
        await driver.press("/", "t", "e")
        assert "/temp [NUMBER]" in driver.shown
        await driver.press("tab")
        assert prompt.text == "/temp "
        assert not driver.screen.query_one(CommandHints).display
        await driver.say("/etc/hosts is a file")
        assert driver.screen.state.messages[0].text == "/etc/hosts is a file"
        await driver.say("/verify")
        assert "no model is here to verify it" in driver.shown


async def test_the_palette_says_what_each_way_to_retry_does():
    offered = [hit async for hit in CommandProvider(ChatScreen(ScriptedSession())).discover()]
    said = {hit.display: hit.help for hit in offered}
    ways = [said[line] for line in ("/retry", "/retry same", "/retry new")]
    assert len(set(ways)) == 3
    assert said["/ink drafter"] != said["/ink confidence"]
