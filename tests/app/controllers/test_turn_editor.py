"""The editor of turns: the prompt holds a turn, and what stood there comes back."""

from mlxspec.trace.events import TurnStarted
from mlxspec_app.conversation.session import ChatCleared, SessionOpening
from tests.support.store_files import exchange


async def test_the_last_turn_is_said_differently_and_the_draft_comes_back(talk):
    await talk.begin(exchange("One", "1"), exchange("Two", "2"))
    prompt = talk.page.prompt
    prompt.text = "a draft"
    talk.editor.begin()
    assert (prompt.text, prompt.has_focus, talk.editor.is_editing) == ("Two", True, True)
    assert prompt.purpose == "editing turn 2 · Enter sends, Esc cancels"
    assert talk.editor.send("Deux")
    assert (prompt.text, prompt.purpose, talk.editor.is_editing) == ("a draft", "", False)
    assert talk.session.orders == [("edit", 1, "Deux")]
    assert talk.feed.state.phase == "busy"


async def test_the_turn_above_what_is_pointed_at_is_edited_and_the_draft_outlives_both(talk):
    await talk.begin(exchange("One", "1"), exchange("Two", "2"))
    talk.page.prompt.text = "a draft"
    talk.editor.begin()
    talk.page.transcript.pointed_message = talk.feed.state.messages[1]
    talk.editor.begin()
    assert talk.page.prompt.text == "One"
    assert talk.editor.end()
    assert talk.page.prompt.text == "a draft"
    assert not talk.editor.end()


async def test_what_is_no_edit_is_not_sent_by_the_editor(talk):
    await talk.begin(exchange("One", "1"))
    assert not talk.editor.send("Two")
    assert talk.session.orders == []


async def test_a_reply_that_is_being_written_is_stopped_and_what_waits_comes_back(talk):
    await talk.begin(TurnStarted("user", "One"))
    talk.editor.begin()
    talk.outbox.submit("Two")
    assert talk.editor.send("Un")
    assert talk.session.orders == ["stop", ("edit", 0, "Un")]
    assert talk.page.prompt.text == "Two"


async def test_a_turn_is_edited_while_models_are_loaded_and_they_still_are(talk):
    await talk.begin(exchange("One", "1"), SessionOpening("other"))
    talk.editor.begin()
    assert talk.editor.send("Un")
    assert talk.session.orders == [("edit", 0, "Un")]
    assert talk.feed.state.phase == "loading"


async def test_another_chat_ends_the_edit(talk):
    await talk.begin(exchange("One", "1"))
    talk.page.prompt.text = "a draft"
    talk.editor.begin()
    await talk.hear(ChatCleared())
    assert not talk.editor.is_editing
    assert talk.page.prompt.text == "a draft"


async def test_where_nothing_was_said_there_is_nothing_to_edit(talk):
    await talk.begin()
    talk.editor.begin()
    assert not talk.editor.is_editing
