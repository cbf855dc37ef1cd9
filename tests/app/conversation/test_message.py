"""The message widget: styles, selection, widths, and how little it draws again."""

import pytest
import pytest_asyncio
from rich.cells import cell_len
from textual.geometry import Offset
from textual.screen import Screen
from textual.selection import Selection

from mlxspec_app.app import MlxspecApp
from mlxspec_app.conversation.messages import Span
from mlxspec_app.conversation.views import CALM, INKS, XRAY, ink_named
from mlxspec_app.text.rendering.pieces import Tone
from mlxspec_app.widgets.chat.painter import GUTTER
from mlxspec_app.widgets.chat.token_message import MEASURE, TokenMessage
from mlxspec_app.widgets.chat.transcript import Transcript
from tests.traces import make_fake

KINDS = ("plain", "accepted", "corrected", "bonus")
SPANS = [
    Span("Every", "plain", 1),
    Span(" token", "accepted", 2),
    Span(" is", "accepted", 2),
    Span(" checked", "corrected", 2),
    Span(" by", "accepted", 3),
    Span(" the", "bonus", 3),
]


class Page(Screen):
    """Nothing but a transcript to put messages into."""

    def compose(self):
        yield Transcript()


pytestmark = pytest.mark.asyncio(loop_scope="module")
SIZE = (60, 20)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started():
    app = MlxspecApp(Page, "mint")
    async with app.run_test(size=SIZE) as pilot:
        yield pilot


@pytest_asyncio.fixture(loop_scope="module")
async def pilot(started):
    """The one app of this file, without a message."""
    app = started.app
    app.theme = "mint"
    app.screen.clear_selection()
    await app.screen.query_one(Transcript).remove_children()
    if app.size != SIZE:
        await started.resize_terminal(*SIZE)
    return started


async def mounted(pilot, spans=(), *, is_user=False, view=XRAY):
    widget = TokenMessage(is_user=is_user, view=view)
    await pilot.app.screen.query_one(Transcript).mount(widget)
    widget.extend(spans)
    await pilot.pause()
    return widget


def drawn(widget):
    return [widget.render_line(y).text.rstrip() for y in range(widget.size.height)]


def styles(widget, y=0):
    """Return (text, style) of a row, neighbours of one look joined, gutter and padding left out."""
    found = []
    for segment in widget.render_line(y):
        if not segment.style.meta.get("offset"):
            continue
        style = segment.style.clear_meta_and_links()
        if found and found[-1][1] == style:
            found[-1] = (found[-1][0] + segment.text, style)
        else:
            found.append((segment.text, style))
    return found


async def test_every_kind_has_its_colour_and_a_cue_besides(pilot):
    widget = await mounted(pilot, SPANS)
    found = {
        text.strip(): (style.color.get_truecolor().hex, style.bold, style.underline, style.italic)
        for text, style in styles(widget)
    }
    colours = {kind: pilot.app.theme_variables[f"spec-{kind}"].lower() for kind in KINDS}
    assert found["Every"] == (colours["plain"], None, None, None)
    assert found["token is"] == (colours["accepted"], None, None, None)
    assert found["checked"] == (colours["corrected"], None, True, True)
    assert found["the"] == (colours["bonus"], None, None, True)
    underlined = [text for text, style in styles(widget) if style.underline]
    assert underlined == ["checked"]  # without the space before it


@pytest.mark.parametrize("ink", INKS, ids=lambda ink: ink.name)
async def test_styles_of_one_ink_differ_without_colour(pilot, ink):
    probs = [None, 0.01, 0.1, 0.2, 0.4, 0.6, 0.8, 0.95]
    sources = ("suffix", "eagle3", "model")
    spans = [
        Span(" a", "accepted", 2, p, q, source) for p in probs for q in probs for source in sources
    ]
    spans += [Span(" a", kind, 2, 0.5) for kind in ("corrected", "bonus")]
    widget = await mounted(pilot, [])
    widget.set_ink(ink)
    looks = {}
    for span in spans:
        style = widget._painter.mixed(ink.style_of(span), "", Tone.PLAIN)
        cues = (bool(style.bold), bool(style.underline), bool(style.italic))
        looks.setdefault(cues, set()).add(ink.style_of(span))
    quiet = {"step-1", "step-2", "step-3", "plain", "accepted", "text"}
    for names in looks.values():
        assert len(names - quiet) <= 1
        assert not (names & quiet and names - quiet)


async def test_rounds_have_alternating_backgrounds(pilot):
    widget = await mounted(pilot, SPANS)
    found = {text.strip(): style.bgcolor.get_truecolor().hex for text, style in styles(widget)}
    colours = pilot.app.theme_variables
    assert found["token is"] == found["checked"] == colours["spec-band-b"].lower()
    assert found["by"] == colours["spec-band-a"].lower()
    plain = await mounted(pilot, [Span(f" {number}", "plain", number) for number in range(1, 5)])
    assert len(styles(plain)) == 1


async def test_without_ink_it_is_plain_text(pilot):
    widget = await mounted(pilot, SPANS)
    widget.set_ink(ink_named("off"))
    [(text, style)] = styles(widget)
    assert text == "Every token is checked by the"
    assert not any((style.bold, style.italic, style.underline))


@pytest.mark.parametrize("trace", ["chat", "wide"])
async def test_rows_are_exactly_as_wide_as_the_widget(pilot, trace):
    rounds = [event for event in make_fake.TRACES[trace]() if hasattr(event, "emit")]
    widget = await mounted(pilot, [Span(t.text, t.kind, e.r) for e in rounds for t in e.emit])
    for y in range(widget.size.height):
        strip = widget.render_line(y)
        assert strip.cell_length == widget.size.width
        assert sum(cell_len(segment.text) for segment in strip) == widget.size.width


async def test_text_keeps_to_the_measure_in_rows_as_wide_as_the_widget(pilot):
    await pilot.resize_terminal(160, 20)
    widget = await mounted(pilot, [Span("word " * 100, "plain", 1)])
    assert max(cell_len(row) for row in drawn(widget)) <= MEASURE + GUTTER
    for width in (150, 155):
        await pilot.resize_terminal(width, 20)
        await pilot.pause()
        strips = widget.render_lines(widget.size.region)
        assert {strip.cell_length for strip in strips} == {widget.size.width}


async def test_markdown_adds_weight_and_leaves_the_colour_of_the_token(pilot):
    spans = [Span("one ", "accepted", 1), Span("**two**", "accepted", 1), Span(" *x*", "bonus", 1)]
    widget = await mounted(pilot, spans)
    found = {text.strip(): style for text, style in styles(widget)}
    assert found["two"].bold
    assert not found["one"].bold
    assert found["two"].color == found["one"].color
    assert found["**"].dim


async def test_a_block_of_code_is_set_apart_up_to_the_edge(pilot):
    widget = await mounted(pilot, [Span("one\n```\ncode\n```\ntwo", "accepted", 1)])
    panel = pilot.app.theme_variables["panel"].lower()
    rows = [widget.render_line(y) for y in range(5)]
    in_block = [
        any(s.style.bgcolor and s.style.bgcolor.get_truecolor().hex == panel for s in row)
        for row in rows
    ]
    assert in_block == [False, True, True, True, False]
    assert [row.text[1] for row in rows] == [" ", "\u2502", "\u2502", "\u2502", " "]


@pytest.mark.parametrize("ink", INKS, ids=lambda ink: ink.name)
async def test_rows_of_reasoning_are_dim_and_have_a_bar(pilot, ink):
    pieces = [("<think>\n", "mark"), ("hm, two\n", "reasoning"), ("</think>\n", "mark")]
    reply = [Span(text, "plain", 1, 0.9, channel=channel) for text, channel in pieces]
    widget = await mounted(pilot, [])
    widget.set_ink(ink)
    widget.extend([*reply, Span("yes", "plain", 1, 0.9)])
    await pilot.pause()
    rows = [widget.render_line(y) for y in range(4)]
    assert [row.text[2:].rstrip() for row in rows] == ["<think>", "hm, two", "</think>", "yes"]
    assert ["\u2502" in row.text[:2] for row in rows] == [True, True, True, False]
    words = [next(s.style for s in row if s.text.strip(" \u2502")) for row in rows]
    assert [bool(word.italic) for word in words] == [True, True, True, False]
    assert (words[1].color, words[1].dim) != (words[3].color, words[3].dim)


async def test_a_mark_that_completes_a_construct_repaints_the_rows_before(pilot):
    widget = await mounted(pilot, [Span("**" + "word " * 20, "accepted", 1)])
    [widget.render_line(y) for y in range(widget.size.height)]
    assert not any(style.bold for _, style in styles(widget, 0))
    widget.extend([Span("end**", "accepted", 1)])
    await pilot.pause()
    assert any(style.bold for _, style in styles(widget, 0))


async def test_what_the_user_said_is_not_read_as_markdown(pilot):
    widget = await mounted(pilot, [Span("# **one** `two`")], is_user=True)
    [(_, style)] = styles(widget)
    assert drawn(widget) == ["\u276f # **one** `two`"]
    assert not style.bold


async def test_control_characters_are_shown_as_signs_even_where_tokens_part_them(pilot):
    widget = await mounted(pilot, [Span(text, "accepted", 1) for text in ("a\x1b", "[31mb\x9bc\a")])
    assert "a␛[31mb\ufffdc␇" in widget.render_line(0).text


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        (None, None, "one two\n\nthree"),
        (Offset(4, 0), Offset(7, 0), "two"),
        (Offset(4, 0), Offset(2, 2), "two\n\nth"),
        (Offset(0, 1), Offset(0, 2), "\n"),
    ],
)
async def test_a_selection_is_made_of_characters(pilot, start, end, text):
    widget = await mounted(pilot, [Span("one two\n\nthree", "accepted", 1)])
    assert widget.get_selection(Selection(start, end)) == (text, "\n")


async def test_dragging_selects_across_a_wrapped_row_and_wide_characters(pilot):
    text = "one 世界 two 🙂 " * 6
    widget = await mounted(pilot, [Span(text, "accepted", 1)])
    region = widget.content_region
    await pilot.mouse_down(offset=(region.x + GUTTER + 4, region.y))
    await pilot.hover(offset=(region.x + GUTTER + 8, region.y + 1))
    await pilot.mouse_up(offset=(region.x + GUTTER + 8, region.y + 1))
    await pilot.pause()
    chosen = pilot.app.screen.get_selected_text()
    assert chosen is not None
    assert chosen.startswith("世界 two")
    assert chosen in text


async def test_selected_characters_are_highlighted(pilot):
    widget = await mounted(pilot, [Span("one two three", "accepted", 1)])
    pilot.app.screen.selections = {widget: Selection(Offset(4, 0), Offset(7, 0))}
    await pilot.pause()
    marked = pilot.app.theme_variables["screen-selection-background"].lower()
    chosen = [t for t, s in styles(widget) if s.bgcolor.get_truecolor().hex == marked]
    assert chosen == ["two"]


async def test_a_new_width_wraps_anew_and_keeps_the_selection(pilot):
    widget = await mounted(pilot, [Span("word " * 30, "accepted", 1)])
    height = widget.size.height
    pilot.app.screen.selections = {widget: Selection(Offset(50, 0), Offset(70, 0))}
    before = pilot.app.screen.get_selected_text()
    await pilot.resize_terminal(40, 20)
    await pilot.pause()
    assert pilot.app.screen.get_selected_text() == before
    assert widget.size.height > height


async def test_a_new_theme_changes_the_colours(pilot):
    widget = await mounted(pilot, SPANS)
    before = styles(widget)
    pilot.app.theme = "day"
    await pilot.pause()
    assert styles(widget) != before


async def test_a_token_draws_only_the_rows_it_changes(pilot, monkeypatch):
    widget = await mounted(pilot, [Span("word " * 300, "accepted", 1)])
    for y in range(widget.size.height):
        widget.render_line(y)
    calls = []
    draw = TokenMessage._draw
    monkeypatch.setattr(TokenMessage, "_draw", lambda self, y: calls.append(y) or draw(self, y))
    widget.extend([Span("x", "bonus", 2)])
    for y in range(widget.size.height):
        widget.render_line(y)
    assert calls == [widget.size.height - 1]


async def test_the_caret_stands_behind_the_last_word_while_more_is_coming(pilot):
    widget = await mounted(pilot, SPANS)
    widget.set_streaming(True)
    assert drawn(widget)[-1].endswith("the▍")
    widget.set_streaming(False)
    assert drawn(widget)[-1].endswith("the")


async def test_a_new_row_takes_the_caret_along(pilot):
    widget = await mounted(pilot, view=CALM)
    widget.set_streaming(True)
    for text in ("```python\n", "a = 1", "\n", "b = 2", "\n", "c"):
        widget.extend([Span(text, "plain", 1)])
        await pilot.pause()
        assert sum(row.count("▍") for row in drawn(widget)) == 1


async def test_the_margin_shows_the_drafted_share_of_a_row(pilot):
    spans = [Span("aaaa\n", "accepted", 1), Span("bbbb\n", "corrected", 1)]
    spans += [Span("aa", "accepted", 2), Span("bb", "bonus", 2)]
    widget = await mounted(pilot, spans)
    assert [row[0] for row in (widget.render_line(y).text for y in range(3))] == ["█", " ", "▌"]
