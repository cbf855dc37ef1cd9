"""Without colour nothing is lost: every meaning has a weight, a line or a sign of its own."""

from itertools import combinations

import pytest
from rich.segment import Segment
from rich.style import Style
from textual.selection import Selection
from textual.widgets import OptionList

from mlxspec_app.conversation.messages import Span
from mlxspec_app.text.rendering.document import Document
from mlxspec_app.widgets.chat.painter import opens_round, with_tick
from mlxspec_app.widgets.chat.token_message import TokenMessage
from mlxspec_app.widgets.draft.marks import KINDS
from tests.support.app_driver import chat, replay
from tests.traces import make_fake


@pytest.fixture
def _no_color(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")


def weight(style):
    """What of a style is left without colour."""
    return (style.bold, style.italic, style.underline, style.strike, style.reverse, style.dim)


def ticks(text, spans):
    """The text with a bar before each character that begins a round, row by row."""
    rows = []
    for row in text.rows:
        line, shown = text.lines[row.line], ""
        [piece] = row.pieces
        for run in line.runs(piece.start, piece.start + len(piece.text)):
            mark = "|" if opens_round(line, run, spans) else ""
            shown += mark + line.text[run.start : run.end]
        rows.append(shown)
    return rows


def wrapped(width, *pieces):
    """Wrapped text of (words, round) and its spans."""
    text = Document(width, markup="plain")
    text.extend([words for words, _ in pieces])
    return text, [Span(words, "accepted", r) for words, r in pieces]


def test_every_verdict_differs_from_every_other_in_sign_and_most_in_weight():
    assert len({kind.sign for kind in KINDS.values()}) == len(KINDS)
    kept = [Style.parse(KINDS[mark].style.split(" ", 1)[1]) for mark in ("accepted", "bonus")]
    for one, other in combinations([*kept, Style.parse("strike")], 2):
        assert weight(one) != weight(other)


@pytest.mark.parametrize(
    ("width", "pieces", "rows"),
    [
        (80, [("one", 1), (" two", 1), (" three", 2), (",", 3), (" four", 3)],
         ["one two| three|, four"]),
        (8, [("one two", 1), (" three", 2), (" four", 2)], ["one two", "|three", "four"]),
        (8, [("abcdef", 1), ("ghijkl", 2)], ["abcdef|gh", "ijkl"]),
    ],
    ids=["where its first token does", "with the word in a new row", "once in a token cut in two"],
)  # fmt: skip
def test_a_round_begins(width, pieces, rows):
    assert ticks(*wrapped(width, *pieces)) == rows


def test_a_tick_is_a_line_below_one_character():
    bold = Style(bold=True)
    space, tick, rest = with_tick([Segment(" two", bold)])
    assert [space.text, tick.text, rest.text] == [" ", "t", "wo"]
    assert space.style == rest.style == bold
    assert (tick.style.underline, tick.style.bold) == (True, True)


@pytest.mark.parametrize(
    ("texts", "marked"),
    [(["  ", "a"], "a"), (["👩‍🚀 up"], "👩‍🚀")],
    ids=["never below a space", "below a whole character"],
)
def test_a_tick_is_where_something_is_drawn(texts, marked):
    parts = with_tick([Segment(text, Style()) for text in texts])
    assert [part.text for part in parts if part.style.underline] == [marked]


async def test_where_no_background_is_seen_rounds_are_ticked_and_selected_text_is_reversed():
    async with chat() as driver:
        await driver.say("hello")
        message = driver.screen.query(TokenMessage).last()
        for theme in ("mint", "terminal", "terminal-light"):
            driver.app.theme = theme
            driver.screen.selections = {}
            driver.screen.action_view("xray")
            await driver.settle()
            is_seen = theme == "mint"
            assert bool(ticked(driver)) != is_seen, theme
            assert [part for part in underlined(driver) if part.text.isspace()] == []
            driver.screen.action_view("calm")
            driver.screen.selections = {message: Selection(None, None)}
            await driver.settle()
            segments = [part for part in message.render_line(0) if part.text.strip()]
            assert all(bool(part.style.reverse) != is_seen for part in segments), theme


@pytest.mark.usefixtures("_no_color")
@pytest.mark.parametrize("theme", ["mint", "terminal"])
async def test_kinds_of_tokens_differ_in_weight_and_no_blank_is_underlined(theme):
    async with chat(theme=theme) as driver:
        await driver.say("hello")
        message = driver.screen.query(TokenMessage).last()
        for names in (
            ("accepted", "corrected", "bonus"),
            ("step-1", "step-2", "step-4", "step-5"),
            ("over", "far-over", "under", "far-under", "plain"),
            ("text", "head", "model"),
        ):
            styles = [weight(message._painter.part_style(name)) for name in names]
            assert len(set(styles)) == len(names), names
        for view in ("calm", "xray"):
            driver.screen.action_view(view)
            await driver.settle()
            assert [part for part in underlined(driver) if part.text.isspace()] == []
            assert bool(underlined(driver)) == (view == "xray")


@pytest.mark.usefixtures("_no_color")
async def test_weights_and_lines_say_what_colours_would():
    async with chat() as driver:
        await driver.press("tab")
        options = driver.screen.query_one(OptionList)
        style = options.get_component_rich_style("option-list--option-highlighted")
        assert options.has_focus
        assert style.reverse
        await driver.say("hello")
        message = driver.screen.query(TokenMessage).last()
        own, guess = (weight(message._painter.part_style(name)) for name in ("own", "guess"))
        assert own != guess
        await driver.say("/view xray")
        assert len(ticked(driver)) > 5
        await driver.say("/ink off")
        assert not ticked(driver)


@pytest.mark.usefixtures("_no_color")
async def test_a_replay_tells_its_phase_and_place_without_colour():
    async with replay(make_fake.tree()) as driver:
        await driver.wait(0.5)
        await driver.press("space", "right")
        assert "▼" in driver.shown
        assert "▸" in driver.shown


def underlined(driver):
    """What has a line below it on the screen."""
    strips = driver.screen._compositor.render_strips()
    parts = [part for strip in strips for part in strip if part.style]
    return [part for part in parts if part.style.underline]


def ticked(driver):
    """The single letters with a line below them: corrected tokens have one in full."""
    return [part for part in underlined(driver) if len(part.text) == 1 and not part.style.italic]
