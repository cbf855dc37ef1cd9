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
from mlxspec_app.widgets.draft.marks import MARK_STYLES, SIGNS
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
    assert len(set(SIGNS.values())) == len(SIGNS)
    kept = [Style.parse(MARK_STYLES[mark].split(" ", 1)[1]) for mark in ("accepted", "bonus")]
    for one, other in combinations([*kept, Style.parse("strike")], 2):
        assert weight(one) != weight(other)


@pytest.mark.usefixtures("_no_color")
@pytest.mark.parametrize("theme", ["mint", "terminal"])
async def test_kinds_of_tokens_differ_in_weight(theme):
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


def test_a_round_begins_where_its_first_token_does():
    pieces = [("one", 1), (" two", 1), (" three", 2), (",", 3), (" four", 3)]
    assert ticks(*wrapped(80, *pieces)) == ["one two| three|, four"]


def test_a_round_that_begins_in_a_new_row_begins_with_the_word():
    pieces = [("one two", 1), (" three", 2), (" four", 2)]
    assert ticks(*wrapped(8, *pieces)) == ["one two", "|three", "four"]


def test_a_token_cut_in_two_begins_its_round_once():
    assert ticks(*wrapped(8, ("abcdef", 1), ("ghijkl", 2))) == ["abcdef|gh", "ijkl"]


def test_a_tick_is_a_line_below_one_character():
    bold = Style(bold=True)
    space, tick, rest = with_tick([Segment(" two", bold)])
    assert [space.text, tick.text, rest.text] == [" ", "t", "wo"]
    assert space.style == rest.style == bold
    assert (tick.style.underline, tick.style.bold) == (True, True)


def test_a_tick_is_never_below_a_space():
    spaces, tick = with_tick([Segment("  ", Style()), Segment("a", Style())])
    assert not spaces.style.underline
    assert tick.style.underline


def test_a_tick_does_not_tear_a_character_apart():
    tick, rest = with_tick([Segment("👩‍🚀 up", Style())])
    assert (tick.text, rest.text) == ("👩‍🚀", " up")


async def test_rounds_are_not_ticked_where_backgrounds_tell_them_apart():
    async with chat(view="xray") as driver:
        await driver.say("hello")
        assert not ticked(driver)
        await driver.say("/theme terminal")
        assert ticked(driver)


@pytest.mark.parametrize("view", ["calm", "colours", "xray"])
@pytest.mark.usefixtures("_no_color")
async def test_no_blank_is_underlined(view):
    async with chat(view=view) as driver:
        await driver.say("hello")
        assert [p for p in underlined(driver) if p.text.isspace()] == []
        assert bool(underlined(driver)) == (view == "xray")


@pytest.mark.parametrize("view", ["calm", "colours", "xray"])
@pytest.mark.parametrize("theme", ["terminal", "terminal-light"])
async def test_no_blank_is_underlined_in_the_colours_of_the_terminal(theme, view):
    async with chat(view=view, theme=theme) as driver:
        await driver.say("hello")
        assert [p for p in underlined(driver) if p.text.isspace()] == []
        assert bool(underlined(driver)) == (view == "xray")


@pytest.mark.parametrize("theme", ["terminal", "mint"])
async def test_selected_text_is_reversed_where_no_background_is_seen(theme):
    async with chat(theme=theme) as driver:
        await driver.say("hello")
        message = driver.screen.query(TokenMessage).last()
        driver.screen.selections = {message: Selection(None, None)}
        await driver.settle()
        segments = [part for part in message.render_line(0) if part.text.strip()]
        assert all(bool(part.style.reverse) == (theme == "terminal") for part in segments)


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
    return [part for part in underlined(driver) if len(part.text) == 1 and not part.style.bold]
