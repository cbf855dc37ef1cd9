"""The conversation as a whole: what is followed, held in view, and how much is laid out."""

from dataclasses import replace

import pytest
import pytest_asyncio
from textual.geometry import Offset
from textual.screen import Screen
from textual.selection import Selection

from mlxspec_app.app import MlxspecApp
from mlxspec_app.conversation.messages import Message, Reply, Span, find_words
from mlxspec_app.conversation.views import CALM, INKS, VIEWS, XRAY
from mlxspec_app.widgets.chat.message_rows import EarlierRow
from mlxspec_app.widgets.chat.token_message import TokenMessage
from mlxspec_app.widgets.chat.transcript import Transcript

MOST_SHOWN = 20
SIZE = (60, 20)
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pilot():
    """The one app of this file; it shows a page without anything."""
    async with MlxspecApp(Screen).run_test(size=SIZE) as pilot:
        yield pilot


@pytest_asyncio.fixture(loop_scope="module")
async def transcript(pilot, monkeypatch):
    """A transcript that keeps few messages, alone on the page."""
    monkeypatch.setattr("mlxspec_app.widgets.chat.transcript.MOST_SHOWN", MOST_SHOWN)
    monkeypatch.setattr("mlxspec_app.widgets.chat.transcript._MORE", 10)
    await pilot.resize_terminal(*SIZE)
    transcript = Transcript()
    await pilot.app.screen.mount(transcript)
    yield transcript
    await transcript.remove()


def finished(text, **more):
    return Reply(spans=[Span(text, "accepted", 1)], reason="stop", **more)


def conversation(num_messages):
    """Questions and replies of two rows in turn."""
    return [
        finished(f"reply {number}\nits end")
        if number % 2
        else Message("user", [Span(f"question {number}")])
        for number in range(num_messages)
    ]


def shown(transcript):
    return [widget.text.partition("\n")[0] for widget in transcript.query(TokenMessage)]


def in_view(transcript):
    """The messages in view, and where they begin."""
    return [
        (widget.text, widget.region.y)
        for widget in transcript.query(TokenMessage)
        if widget.region and transcript.region.overlaps(widget.region)
    ]


async def show(pilot, transcript, messages, y=None):
    """Show messages, and scroll to a row."""
    transcript.sync(messages)
    await pilot.pause()
    if y is not None:
        transcript.scroll_to(y=y, animate=False)
        await pilot.pause()


async def test_the_newest_messages_of_a_long_conversation_are_laid_out(pilot, transcript):
    await show(pilot, transcript, conversation(MOST_SHOWN + 16))
    assert len(shown(transcript)) == MOST_SHOWN
    assert shown(transcript)[0] == "question 16"
    assert transcript.query_one(EarlierRow).display
    assert transcript.is_vertical_scroll_end


async def test_earlier_messages_come_in_above_what_is_in_view_until_all_are_there(
    pilot, transcript
):
    messages = conversation(MOST_SHOWN + 15)
    await show(pilot, transcript, messages, y=12)
    before = in_view(transcript)
    transcript.load_earlier()
    await pilot.pause()
    assert len(shown(transcript)) == MOST_SHOWN + 10
    assert in_view(transcript) == before
    transcript.scroll_home(animate=False)
    await pilot.pause()
    await pilot.pause()
    assert shown(transcript) == [message.text.partition("\n")[0] for message in messages]
    assert not transcript.query_one(EarlierRow).display


async def test_a_conversation_that_grows_forgets_its_oldest_widgets(pilot, transcript):
    messages = conversation(MOST_SHOWN)
    for _ in range(4):
        messages += conversation(6)
        await show(pilot, transcript, messages)
    assert len(messages) > MOST_SHOWN + 20
    assert len(shown(transcript)) <= MOST_SHOWN + 10
    assert shown(transcript)[-1] == "reply 5"
    assert transcript.is_vertical_scroll_end


async def test_only_messages_near_the_view_are_placed_unless_a_selection_reaches_further(
    pilot, transcript
):
    await show(pilot, transcript, [finished("one\n" * 50) for _ in range(10)])
    placed = transcript.arrange(transcript.scrollable_content_region.size).placements
    assert len(placed) <= 4
    assert transcript.virtual_size.height > 500
    screen, widgets = pilot.app.screen, list(transcript.query(TokenMessage))
    screen.selections = {widgets[-1]: Selection(Offset(0, 0), Offset(1, 0))}
    await pilot.pause()
    assert all(widget.region for widget in widgets)
    screen.clear_selection()
    await pilot.pause()
    assert not widgets[0].region


async def test_dragging_across_messages_selects_what_lies_between(pilot, transcript):
    await show(pilot, transcript, [finished(f"{n} one\n{n} two") for n in range(4)])
    first, *_, last = transcript.query(TokenMessage)
    await pilot.mouse_down(offset=(first.region.x + 2, first.region.y + 1))
    end = (last.region.x + 7, last.region.y)
    await pilot.hover(offset=end)
    await pilot.mouse_up(offset=end)
    await pilot.pause()
    lines = [line for line in pilot.app.screen.get_selected_text().split("\n") if line]
    pilot.app.screen.clear_selection()
    assert lines == ["0 two", "1 one", "1 two", "2 one", "2 two", "3 one"]


async def test_messages_that_are_over_are_not_looked_at_again(pilot, transcript, monkeypatch):
    messages = [*conversation(10), Message("user", [Span("on")]), Reply()]
    transcript.sync(messages)
    seen = []
    update = Transcript._update
    monkeypatch.setattr(
        Transcript, "_update", lambda self, message: seen.append(message) or update(self, message)
    )
    messages[-1].spans.append(Span("word", "accepted", 1))
    transcript.sync(messages)
    assert seen == messages[-1:]
    assert shown(transcript)[-1] == "word"


async def test_another_conversation_takes_the_place_of_the_last_one(pilot, transcript):
    one, two = conversation(20), conversation(6)
    for messages in (one, two, [*one[:10], *two], one[:3], []):
        await show(pilot, transcript, messages)
        assert shown(transcript) == [message.text.partition("\n")[0] for message in messages]


async def test_going_back_cuts_a_message_instead_of_making_a_new_one(pilot, transcript):
    reply = Reply(spans=[Span("one", "plain", 1), Span(" two", "plain", 2)])
    await show(pilot, transcript, [reply])
    before = transcript.query_one(TokenMessage)
    transcript.sync([replace(reply, spans=reply.spans[:1])])
    assert transcript.query_one(TokenMessage) is before
    assert before.text == "one"


async def test_unseen_tokens_are_those_since_the_reader_left(pilot, transcript):
    messages = [*conversation(10), Reply()]
    await show(pilot, transcript, messages, y=2)
    messages[-1].spans += [Span("a", "accepted", 1), Span("b", "bonus", 1)]
    await show(pilot, transcript, messages)
    assert transcript.unseen == 2
    assert transcript.scroll_y == 2
    transcript.follow()
    await pilot.pause()
    assert transcript.unseen == 0
    assert transcript.scroll_y == transcript.max_scroll_y > 0


async def test_a_new_width_keeps_what_is_read_in_view(pilot, transcript):
    await show(pilot, transcript, [finished(f"{number} " + "word " * 60) for number in range(9)])
    widget = list(transcript.query(TokenMessage))[4]
    transcript.scroll_to(y=transcript.region_of(widget).y, animate=False)
    await pilot.pause()
    await pilot.resize_terminal(40, 20)
    await pilot.pause()
    assert transcript.region_of(widget).y == transcript.scroll_y


async def test_another_view_keeps_what_is_read_in_view(pilot, transcript):
    messages = [finished(f"# {number}\n```\none\n```\n" * 4) for number in range(8)]
    await show(pilot, transcript, messages)
    widget = list(transcript.query(TokenMessage))[4]
    transcript.scroll_to(y=transcript.region_of(widget).y, animate=False)
    await pilot.pause()
    for view in VIEWS:
        transcript.set_view(view, INKS[0])
        await pilot.pause()
        assert transcript.region_of(widget).y == transcript.scroll_y


@pytest.mark.parametrize(("width", "left"), [(60, 1), (104, 1), (160, 28)])
async def test_a_wide_terminal_has_its_text_in_the_middle(pilot, transcript, width, left):
    await pilot.resize_terminal(width, 20)
    await show(pilot, transcript, [finished("x " * 200)])
    region = transcript.query_one(TokenMessage).region
    assert (region.x, region.width) == (left, min(103, width - 3))


async def test_a_turned_reply_follows_the_view_again(pilot, transcript):
    reply = finished("# one")
    transcript.sync([reply])
    transcript.toggle_rendered(reply)
    assert not transcript.query_one(TokenMessage).is_rendered
    transcript.set_view(CALM, INKS[0])
    assert transcript.query_one(TokenMessage).is_rendered
    transcript.set_view(XRAY, INKS[0])
    assert not transcript.query_one(TokenMessage).is_rendered


async def test_a_token_of_a_rendered_reply_is_marked_where_it_stands(pilot, transcript):
    spans = [Span("a ", "plain", 1), Span("**b**", "accepted", 2), Span(" c", "bonus", 2)]
    await show(pilot, transcript, [Reply(spans=spans, reason="stop")])
    widget = transcript.query_one(TokenMessage)
    assert widget.point_at(1) == 0
    assert [s.text for s in widget.render_line(0) if s.style and s.style.reverse] == ["b"]


async def test_a_link_of_a_model_opens_pages_of_the_web_alone(pilot, transcript, monkeypatch):
    opened = []
    monkeypatch.setattr(MlxspecApp, "open_url", lambda app, url: opened.append(url))
    text = "[page](https://example.org) [file](file:///etc/passwd)"
    await show(pilot, transcript, [finished(text)])
    widget = transcript.query_one(TokenMessage)
    row = widget.render_line(0).text
    for word in ("page", "file", "https"):
        x = widget.region.x + row.index(word)
        await pilot.click(offset=(x, widget.region.y))
    assert opened == ["https://example.org"] * 2


LONG = "\n".join(["Explain this:", *(f"line {n}" for n in range(80)), "What is it?"])


async def test_a_long_message_of_the_user_is_folded_until_it_is_clicked_or_a_word_in_it_is_found(
    transcript, pilot
):
    message = Message("user", [Span(LONG)])
    transcript.sync([message, finished("a list")])
    await pilot.pause()
    (widget, _) = transcript.query(TokenMessage)
    short = "Explain this:\nline 0\nline 1\n[76 more lines]\nline 78\nline 79\nWhat is it?"
    assert widget.text == short
    for expected in (LONG, short):
        await pilot.click(widget, offset=(5, 0))
        assert widget.text == expected
    assert not transcript.toggle_parts(Message("user", [Span(LONG)]))  # it is not here
    transcript.show_hit(find_words([message], "line 40")[0])
    await pilot.pause()
    assert widget.text == LONG
    assert pilot.app.screen.get_selected_text() == "line 40"
    assert message.text == LONG


async def test_a_short_message_and_a_reply_have_nothing_to_unfold(transcript):
    short, reply = Message("user", [Span("hi")]), finished(LONG)
    transcript.sync([short, reply])
    assert not transcript.toggle_parts(short)
    assert [widget.text for widget in transcript.query(TokenMessage)][1].endswith("What is it?")
