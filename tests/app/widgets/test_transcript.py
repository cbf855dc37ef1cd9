"""The conversation as a whole: what is pointed at, copied, rendered, and how much is laid out."""

import pytest
from textual.geometry import Offset
from textual.screen import Screen
from textual.selection import Selection

from mlxspec_app.app import MlxspecApp
from mlxspec_app.conversation.messages import Message, Reply, Span
from mlxspec_app.conversation.views import CALM, COLOURS, INKS, VIEWS, XRAY
from mlxspec_app.widgets.chat.inspector import Inspector
from mlxspec_app.widgets.chat.message_rows import EarlierRow
from mlxspec_app.widgets.chat.token_message import TokenMessage
from mlxspec_app.widgets.chat.transcript import Transcript
from tests.support.app_driver import chat, replay
from tests.traces import make_fake

MOST_SHOWN = 20


class Page(Screen):
    """Nothing but a transcript."""

    def compose(self):
        yield Transcript()


@pytest.fixture
async def pilot():
    app = MlxspecApp(Page)
    async with app.run_test(size=(60, 20)) as pilot:
        yield pilot


@pytest.fixture
def transcript(pilot, monkeypatch):
    monkeypatch.setattr("mlxspec_app.widgets.chat.transcript.MOST_SHOWN", MOST_SHOWN)
    monkeypatch.setattr("mlxspec_app.widgets.chat.transcript._MORE", 10)
    return pilot.app.screen.query_one(Transcript)


@pytest.fixture
def copied(monkeypatch):
    texts = []
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(MlxspecApp, "copy_to_clipboard", lambda app, text: texts.append(text))
    return texts


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


async def test_the_newest_messages_of_a_long_conversation_are_laid_out(pilot, transcript):
    transcript.sync(conversation(MOST_SHOWN + 16))
    await pilot.pause()
    assert len(shown(transcript)) == MOST_SHOWN
    assert shown(transcript)[0] == "question 16"
    assert transcript.query_one(EarlierRow).display
    assert transcript.is_vertical_scroll_end


async def test_earlier_messages_come_in_above_what_is_in_view(pilot, transcript):
    transcript.sync(conversation(MOST_SHOWN + 15))
    await pilot.pause()
    transcript.scroll_to(y=12, animate=False)
    await pilot.pause()
    before = in_view(transcript)
    transcript.load_earlier()
    await pilot.pause()
    assert len(shown(transcript)) == MOST_SHOWN + 10
    assert in_view(transcript) == before


async def test_scrolling_to_the_top_brings_all_of_it_in(pilot, transcript):
    messages = conversation(MOST_SHOWN + 15)
    transcript.sync(messages)
    await pilot.pause()
    for _ in range(4):
        transcript.scroll_home(animate=False)
        await pilot.pause()
        await pilot.pause()
    assert shown(transcript) == [message.text.partition("\n")[0] for message in messages]
    assert not transcript.query_one(EarlierRow).display


async def test_a_conversation_that_grows_forgets_its_oldest_widgets(pilot, transcript):
    messages = conversation(MOST_SHOWN)
    for _ in range(4):
        messages += conversation(6)
        transcript.sync(messages)
        await pilot.pause()
    assert len(messages) > MOST_SHOWN + 20
    assert len(shown(transcript)) <= MOST_SHOWN + 10
    assert shown(transcript)[-1] == "reply 5"
    assert transcript.is_vertical_scroll_end


async def test_only_messages_near_the_view_are_placed(pilot, transcript):
    transcript.sync([finished("one\n" * 50) for _ in range(10)])
    await pilot.pause()
    placed = transcript.arrange(transcript.scrollable_content_region.size).placements
    assert len(placed) <= 4
    assert transcript.virtual_size.height > 500


async def test_a_selection_reaches_messages_far_from_the_view(pilot, transcript):
    transcript.sync([finished(f"{number}\n" * 40) for number in range(5)])
    await pilot.pause()
    screen, widgets = pilot.app.screen, list(transcript.query(TokenMessage))
    screen.selections = {widgets[-1]: Selection(Offset(0, 0), Offset(1, 0))}
    await pilot.pause()
    assert [bool(widget.region) for widget in widgets] == [True] * 5
    screen.clear_selection()
    await pilot.pause()
    assert not widgets[0].region


async def test_dragging_across_messages_selects_what_lies_between(pilot, transcript):
    transcript.sync([finished(f"{number} one\n{number} two") for number in range(4)])
    await pilot.pause()
    first, *_, last = transcript.query(TokenMessage)
    await pilot.mouse_down(offset=(first.region.x + 2, first.region.y + 1))
    end = (last.region.x + 7, last.region.y)
    await pilot.hover(offset=end)
    await pilot.mouse_up(offset=end)
    await pilot.pause()
    lines = [line for line in pilot.app.screen.get_selected_text().split("\n") if line]
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
        transcript.sync(messages)
        await pilot.pause()
        assert shown(transcript) == [message.text.partition("\n")[0] for message in messages]


async def test_unseen_tokens_are_those_since_the_reader_left(pilot, transcript):
    messages = [*conversation(10), Reply()]
    transcript.sync(messages)
    await pilot.pause()
    transcript.scroll_to(y=2, animate=False)
    await pilot.pause()
    messages[-1].spans += [Span("a", "accepted", 1), Span("b", "bonus", 1)]
    transcript.sync(messages)
    await pilot.pause()
    assert transcript.unseen == 2
    assert transcript.scroll_y == 2
    transcript.follow()
    await pilot.pause()
    assert transcript.unseen == 0


async def test_a_new_width_keeps_what_is_read_in_view(pilot, transcript):
    messages = [finished(f"{number} " + "word " * 60) for number in range(9)]
    transcript.sync(messages)
    await pilot.pause()
    widget = list(transcript.query(TokenMessage))[4]
    transcript.scroll_to(y=transcript.region_of(widget).y, animate=False)
    await pilot.pause()
    await pilot.resize_terminal(40, 20)
    await pilot.pause()
    assert transcript.region_of(widget).y == transcript.scroll_y


async def test_going_back_cuts_a_message_instead_of_making_a_new_one():
    async with replay(make_fake.chat(), size=(80, 24)) as driver:
        for key in ("right", "right", "right", "left"):
            await driver.press(f"{key}_square_bracket")
        before = list(driver.screen.query(TokenMessage))
        await driver.press("left_square_bracket")
        assert list(driver.screen.query(TokenMessage)) == before
        assert before[-1].text == driver.screen.state.reply.text


async def test_j_and_k_reach_every_message():
    async with chat() as driver:
        await driver.say("one")
        await driver.say("two")
        transcript = driver.screen.query_one(Transcript)
        messages = driver.screen.state.messages
        await driver.press("tab", "left")
        seen = []
        for key in ("k", "k", "k", "k", "j"):
            await driver.press(key)
            seen.append(transcript.pointed_message)
        assert seen == [messages[2], messages[1], messages[0], messages[0], messages[1]]
        await driver.press("tab")
        assert transcript.pointed_message is None


async def test_the_message_pointed_at_is_copied(copied):
    async with chat() as driver:
        await driver.say("one")
        await driver.say("two")
        await driver.press("tab", "y", "k", "k", "y", "k", "y")
        assert copied == [make_fake.CODE, "two", make_fake.PROSE]
        assert "Sent to the terminal" in driver.shown


async def test_the_block_of_code_pointed_at_is_copied(copied):
    async with chat() as driver:
        await driver.say("one")
        await driver.say("two")
        await driver.press("tab", "c", "k", "c", "k", "c")
        assert [text.split("\n")[0] for text in copied] == ["def merge(left, right):"] * 2
        assert "this message has no code block" in driver.shown


async def test_m_shows_the_exact_text_of_the_reply_and_renders_it_again():
    async with chat(size=(100, 40)) as driver:
        await driver.say("one")
        await driver.say("two")
        assert "```" not in driver.shown
        await driver.press("tab", "m")
        assert "```python" in driver.shown
        await driver.press("m")
        assert "```" not in driver.shown
        assert driver.screen.query_one(Transcript).is_following


async def test_turning_a_reply_keeps_it_where_it_is(pilot, transcript):
    messages = [finished(f"# {number}\n\n" + "one\n" * 10) for number in range(8)]
    transcript.sync(messages)
    await pilot.pause()
    widget = list(transcript.query(TokenMessage))[4]
    transcript.scroll_to(y=transcript.region_of(widget).y - 4, animate=False)
    await pilot.pause()
    for _ in range(2):
        transcript.toggle_rendered(messages[4])
        await pilot.pause()
        assert transcript.region_of(widget).y - transcript.scroll_y == 4


async def test_another_view_keeps_what_is_read_in_view(pilot, transcript):
    transcript.sync([finished(f"# {number}\n```\none\n```\n" * 4) for number in range(8)])
    await pilot.pause()
    widget = list(transcript.query(TokenMessage))[4]
    transcript.scroll_to(y=transcript.region_of(widget).y, animate=False)
    await pilot.pause()
    for view in VIEWS:
        transcript.set_view(view, INKS[0])
        await pilot.pause()
        assert transcript.region_of(widget).y == transcript.scroll_y


async def test_a_turned_reply_follows_the_view_again(pilot, transcript):
    reply = finished("# one")
    transcript.sync([reply])
    transcript.toggle_rendered(reply)
    assert not transcript.query_one(TokenMessage).is_rendered
    transcript.set_view(COLOURS, INKS[0])
    assert transcript.query_one(TokenMessage).is_rendered
    transcript.set_view(XRAY, INKS[0])
    assert not transcript.query_one(TokenMessage).is_rendered


@pytest.mark.parametrize("view", [CALM, COLOURS])
async def test_a_token_of_a_rendered_reply_is_marked_where_it_stands(pilot, transcript, view):
    spans = [Span("a ", "plain", 1), Span("**b**", "accepted", 2), Span(" c", "bonus", 2)]
    transcript.set_view(view, INKS[0])
    transcript.sync([Reply(spans=spans, reason="stop")])
    widget = transcript.query_one(TokenMessage)
    await pilot.pause()
    assert widget.point_at(1) == 0
    assert [s.text for s in widget.render_line(0) if s.style and s.style.reverse] == ["b"]


async def test_a_link_of_a_model_opens_pages_of_the_web_alone(pilot, transcript, monkeypatch):
    opened = []
    monkeypatch.setattr(MlxspecApp, "open_url", lambda app, url: opened.append(url))
    transcript.sync([finished("[page](https://example.org) [file](file:///etc/passwd)")])
    await pilot.pause()
    widget = transcript.query_one(TokenMessage)
    row = widget.render_line(0).text
    for word in ("page", "file", "https"):
        x = widget.region.x + row.index(word)
        await pilot.click(offset=(x, widget.region.y))
    assert opened == ["https://example.org"] * 2


async def test_in_the_x_ray_a_click_points_at_a_token():
    async with chat() as driver:
        await driver.say("one")
        await driver.press("f2")
        widget = list(driver.screen.query(TokenMessage))[-1]
        assert not driver.screen.query_one(Inspector).display
        await driver.pilot.click(offset=(widget.region.x + 3, widget.region.y))
        await driver.settle()
        assert driver.screen.query_one(Inspector).display
        assert widget.pointed is not None
