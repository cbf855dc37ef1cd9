"""What the chat leaves behind: its text in the scrollback, its reason to end on standard error."""

import io
import os
import sys

from mlxspec.trace.events import GenerationFailed, TurnStarted
from mlxspec_app.app import MlxspecApp
from mlxspec_app.conversation.events import SessionFailed
from mlxspec_app.conversation.fold import fold
from mlxspec_app.run import as_plain_text, run_chat
from mlxspec_app.store.records import Version
from mlxspec_app.widgets.chat.prompt import Prompt
from mlxspec_app.widgets.chat.transcript import Transcript
from tests.support.app_driver import chat
from tests.support.scripted_session import ScriptedSession
from tests.traces import make_fake


def test_says_who_said_what():
    state = fold(make_fake.chat())
    text = as_plain_text(state.messages)
    for message in state.messages:
        name = "you" if message.role == "user" else message.role
        assert f"{name}> {message.text.rstrip()}" in text


def test_an_empty_conversation_leaves_nothing():
    assert as_plain_text([]) == ""


def test_nothing_that_was_said_can_move_the_cursor():
    state = fold([TurnStarted("user", "a\x1b[2Jb"), GenerationFailed(0.0, "no \x1b[1m\nroom")])
    assert as_plain_text(state.messages) == (
        "you> a␛[2Jb\n\nassistant>\n[the reply was cut off: no ␛[1m room]"
    )


def test_says_of_a_reply_that_it_is_not_whole():
    events = make_fake.chat()
    end = next(i for i, event in enumerate(events) if event.t == "end")
    assert as_plain_text(fold(events[:end]).messages).endswith("[unfinished]")
    assert "[" not in as_plain_text(fold(events[: end + 1]).messages)


async def test_the_screen_of_the_chat_is_the_one_whose_text_is_left(monkeypatch, capsys):
    async with chat() as driver:
        await driver.say("hello")
        state = driver.screen.state
    left = leave(monkeypatch, state)
    out, err = capsys.readouterr()
    assert (left, err) == (0, "")
    assert out.startswith("you> hello\n\nassistant> ")


async def test_what_is_sent_while_the_app_ends_is_no_error():
    async with chat() as driver:
        screen = driver.screen
        driver.app.exit()
        screen.post_message(Prompt.Submitted("hello"))
        screen.query_one(Transcript).show_versions({0: Version(0, 2)})
    assert driver.app.return_code == 0
    assert "hello" in as_plain_text(screen.state.messages)


def test_a_model_that_could_not_be_loaded_is_told_once_more_and_fails(monkeypatch, capsys):
    assert leave(monkeypatch, fold([SessionFailed("no model lies in 'x'")])) == 1
    assert capsys.readouterr() == ("", "mlxspec: no model lies in 'x'\n")


def test_a_terminal_that_knows_few_characters_gets_what_it_can_show(monkeypatch):
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    assert leave(monkeypatch, fold([TurnStarted("user", "Grüße 你好")])) == 0
    terminal.flush()
    assert terminal.buffer.getvalue() == b"you> Gr??e ??\n"


def test_on_a_narrow_terminal_the_text_breaks_between_words(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("mlxspec_app.run.get_terminal_size", lambda: os.terminal_size((24, 80)))
    words = "Elephants remember extraordinarily distant waterholes for many years."
    leave(monkeypatch, fold([TurnStarted("user", words)]))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 2
    assert all(len(line) <= 24 for line in lines)
    assert " ".join(" ".join(lines).split()) == f"you> {words}"


def leave(monkeypatch, state):
    """Run the chat with an app that shows its screen and ends at once."""

    def run(app, *, inline):
        app.get_default_screen().feed.state = state

    monkeypatch.setattr(MlxspecApp, "run", run)
    return run_chat(ScriptedSession)
