"""The three views: what a reader sees of who wrote a word, and what is only in the X-ray."""

import re
from dataclasses import replace
from itertools import product

import pytest
from textual.color import Color
from textual.screen import Screen
from textual.widgets._toast import Toast

from mlxspec.trace.events import (
    DraftNode,
    DraftProposed,
    DraftVerified,
    EmittedToken,
    SpeedupMeasured,
)
from mlxspec_app.app import MlxspecApp
from mlxspec_app.conversation.events import SessionNotice, SessionReady
from mlxspec_app.conversation.rounds import Round, positions
from mlxspec_app.screens.dialogs import FiguresScreen
from mlxspec_app.screens.help import HelpScreen
from mlxspec_app.themes import theme_for
from mlxspec_app.user_data import find_user_data
from mlxspec_app.widgets.chat.message_rows import ReplyFooter
from mlxspec_app.widgets.chat.prompt import Prompt
from mlxspec_app.widgets.chat.token_message import TokenMessage
from mlxspec_app.widgets.chat.transcript import Transcript
from mlxspec_app.widgets.draft.draft_lane import DraftLane
from mlxspec_app.widgets.draft.legend_strip import LegendStrip
from mlxspec_app.widgets.draft.tree_panel import TreePanel
from mlxspec_app.widgets.stats_panel import StatsPanel
from tests.support.app_driver import chat, rows, running
from tests.support.scripted_session import ScriptedSession
from tests.traces import make_fake

MARKDOWN = (
    "## Sorting\n\nThere are **two** ways, one *rare*; see `sorted`.\n\n- split it\n- merge it\n\n"
    "| way | time |\n|---|--:|\n| merge | n log n |\n\n```python\ndef f(x):\n    return x  # why\n"
    "```\n\nThat is **all**.\n"
)
KINDS = {"accepted", "corrected", "bonus", "plain"}
VIEWS = ("calm", "xray")
THEMES = ("mint", "day", "dusk", "contrast", "terminal", "terminal-light")


def recorded(text=MARKDOWN, **how):
    return list(make_fake.FakeEngine(**how).reply("Explain it.", text))


def painted(driver):
    """Each character on the screen with its style, row by row."""
    strips = driver.app.screen._compositor.render_strips()
    return [[(char, s.style) for s in strip for char in s.text] for strip in strips]


def words_in(driver, colours):
    """The letters and digits of the replies that are drawn in some colours."""
    regions = [m.region for m in driver.screen.query(TokenMessage) if not m.is_user]
    cells = painted(driver)
    return "".join(
        char
        for region in regions
        for y in range(region.y, region.bottom)
        for char, style in cells[y][region.x : region.right]
        if char.isalnum() and style and style.color and style.color.name in colours
    )


def bold_in(driver):
    """The letters of the replies that are drawn in bold."""
    regions = [m.region for m in driver.screen.query(TokenMessage) if not m.is_user]
    rows_of = [painted(driver)[region.y : region.bottom] for region in regions]
    return "".join(c for rows in rows_of for row in rows for c, s in row if c.isalnum() and s.bold)


def styles_of(driver, *widgets):
    """The styles of all characters of some widgets on the screen."""
    cells = painted(driver)
    return [
        style
        for widget in widgets
        for shown in driver.screen.query(widget)
        for row in cells[shown.region.y : shown.region.bottom]
        for _, style in row[shown.region.x : shown.region.right]
        if style is not None
    ]


def colours_of(driver, *names):
    shown = (driver.app.theme_variables[f"spec-{name}"] for name in names)
    return {_name(colour) for colour in shown}


def _name(colour):
    return Color.parse(colour).rich_color.name


def letters(spans, kinds):
    """The letters of a rendered text, of the tokens of some kinds."""
    return "".join(c for s in spans if s.kind in kinds for c in s.text if c.isalnum())


async def test_outside_the_x_ray_a_tint_alone_tells_which_words_were_guessed():
    async with chat(recorded(), speed=1.0, size=(100, 44)) as driver:
        await driver.say("Explain it.")
        for seconds, theme in product((0.9, 60.0), THEMES):
            driver.app.theme = theme
            await driver.wait(seconds)
            tint = colours_of(driver, "guess", "guess-loud", "guess-quiet")
            own = colours_of(driver, "plain", "loud", "muted")
            assert not tint & own
            spans = driver.screen.state.reply.spans
            assert words_in(driver, tint) == letters(spans, {"accepted"}), theme
            assert words_in(driver, own) == letters(spans, KINDS - {"accepted"}), theme
            is_written = not driver.screen.state.reply.is_finished
            assert driver.screen.query_one(DraftLane).display == is_written
            styles = styles_of(driver, TokenMessage, ReplyFooter, DraftLane)
            assert len(styles) > 100
            assert not any(style.underline for style in styles), theme
            assert bold_in(driver) in ("Sortingtwowaytime", "Sortingtwowaytimeall"), theme
            bands = colours_of(driver, "band-a", "band-b") - {"default"}
            page = {_name(driver.app.theme_variables[part]) for part in ("panel", "surface")}
            assert not (bands - page) & {style.bgcolor.name for style in styles if style.bgcolor}


async def test_markdown_is_rendered_while_it_streams():
    async with chat(recorded(), speed=1.0, size=(100, 44)) as driver:
        await driver.say("Explain it.")
        seen = []
        for _ in range(15):
            await driver.wait(0.3)
            text = "\n".join(r for r in rows(driver.screen) if "guess" not in r)
            seen.append(text)
            assert "**" not in text
            assert "##" not in text
            assert "```" not in text
        assert "── Sorting" in seen[1]
        assert "way   │    time" in seen[-1]
        assert "• split it" in seen[-1]
        assert driver.screen.state.reply.is_finished


async def test_a_selection_by_mouse_is_of_the_source_below_the_pointer():
    async with chat(recorded("so **two words** here"), size=(100, 30)) as driver:
        await driver.say("Explain it.")
        message = driver.screen.query(TokenMessage).last()
        y, x = message.region.y, message.region.x + 2
        assert "so two words here" in driver.shown
        await driver.pilot.mouse_down(offset=(x + 3, y))
        await driver.pilot.hover(offset=(x + 8, y))
        await driver.pilot.mouse_up(offset=(x + 8, y))
        await driver.pilot.pause()
        assert driver.screen.get_selected_text() == "two wo"


async def test_one_key_goes_to_the_x_ray_where_a_legend_says_what_each_ink_means():
    async with chat(recorded(), size=(100, 30)) as driver:
        await driver.say("Explain it.")
        assert "F2 X-ray" in driver.shown.replace("f2", "F2")
        assert not driver.screen.query_one(LegendStrip).display
        await driver.press("f2")
        assert "X-ray: provenance  accepted  corrected  bonus  plain" in driver.shown
        assert not driver.screen.query(Toast)
        for ink, word in (("confidence", "p ≥ .9"), ("surprise", "q > 8p"), ("drafter", "head")):
            await driver.say(f"/ink {ink}")
            assert f"X-ray: {ink}" in driver.shown
            assert word in driver.shown
        await driver.pilot.click(LegendStrip)
        await driver.settle()
        assert "X-ray: off" in driver.shown


async def test_the_view_is_kept(tmp_path):
    for key, view in (("f2", "xray"), ("f2", "calm"), ("f2", "xray")):
        user_data = find_user_data(tmp_path)
        async with chat(user_data=user_data) as driver:
            await driver.press(key)
            await driver.app.workers.wait_for_complete()
            assert driver.screen.view.name == view
    assert find_user_data(tmp_path).settings.view == "xray"


async def test_a_replay_opens_in_the_x_ray_and_changes_nothing_for_the_chat():
    async with chat(recorded()) as driver:
        await driver.say("Explain it.")
        await driver.press("f6")
        assert "X-ray: provenance" in driver.shown
        await driver.press("f2")
        await driver.press("escape")
        assert driver.screen.view.name == "calm"
        assert driver.app.settings.view == "calm"


async def test_the_panels_and_figures_follow_where_one_looks():
    async with chat(view="xray", size=(140, 45)) as driver:
        await driver.say("one")
        await driver.say("two")
        panel, seen = driver.screen.query_one(StatsPanel), []
        show = panel.show
        panel.show = lambda reply: seen.append(reply) or show(reply)
        await driver.press("f3", "tab", "left", *["left_square_bracket"] * 3)
        reply, lane = driver.screen.state.reply, driver.screen.query_one(DraftLane)
        span = driver.screen.query_one(Transcript)._cursor.span
        number = reply.spans[span].round
        assert number < reply.rounds[-1].verdict.r
        assert lane.shown.verdict.r == driver.screen.query_one(TreePanel).shown.verdict.r == number
        assert f"draft tree, round {number}" in driver.shown
        for view, title in (("mask", "ancestor mask"), ("tape", "cache rows")):
            driver.screen.action_toggle_tree(view)
            await driver.settle()
            assert f"{title}, round {number}" in driver.shown
        await driver.press("k", "k")
        assert seen[-1] is driver.screen.state.messages[1]
        await driver.press("tab")
        assert lane.shown is driver.screen.state.last_round


async def test_the_guess_line_is_in_plain_words():
    async with chat(recorded(), speed=1.0, size=(140, 30)) as driver:
        await driver.say("Explain it.")
        seen, wrong = set(), []
        while True:
            await driver.wait(0.04)
            if not driver.screen.query_one(DraftLane).display:
                break
            line = next(row for row in rows(driver.screen) if row.startswith(" guess"))
            seen.add(re.sub(r"^.*?(\d of \d right|no guess|appear here).*$", r"\1", line.rstrip()))
            shown = driver.screen.query_one(DraftLane).shown
            at = [token for place in positions(shown) for token in place] if shown else []
            wrong += [token.label for token in at if token.mark == "rejected"]
            assert all(token.label in line for token in at)
        assert wrong
        assert {"no guess", "4 of 5 right"} <= seen
        assert all(re.fullmatch(r"\d of \d right|no guess|appear here", words) for words in seen)


async def test_figures_are_explained_under_the_pointer_and_those_in_view_by_a_key():
    async with chat(recorded(), size=(80, 24)) as driver:
        await driver.say("Explain it.")
        footer = driver.screen.query_one(ReplyFooter)
        await driver.pilot.hover(ReplyFooter, offset=(4, 0))
        assert "guessed: tokens of the reply that were guessed" in footer.tooltip
        await driver.press("tab", "question_mark")
        assert isinstance(driver.app.screen, FiguresScreen)
        assert "guessed  tokens of the reply that were guessed" in driver.shown
        assert "tokens/s  tokens of the reply per second" in driver.shown
        assert "TTFT  " not in driver.shown  # only the X-ray shows it
        await driver.press("escape", "f2")
        await driver.pilot.hover(ReplyFooter, offset=(5, 0))
        assert "TTFT: time to the first token" in footer.tooltip
        assert "guessed:" not in footer.tooltip
        await driver.press("question_mark")
        assert "TTFT  time to the first token" in driver.shown
        await driver.press("question_mark")
        assert isinstance(driver.app.screen, HelpScreen)


async def test_figures_lie_over_the_text_where_there_is_no_room_beside_it():
    async with chat(recorded(), size=(80, 24)) as driver:
        assert "● lossless" in driver.shown
        await driver.say("Explain it.")
        assert "● lossless" in driver.shown
        transcript, panel = driver.screen.query_one(Transcript), driver.screen.query_one(StatsPanel)
        width = transcript.size.width
        await driver.press("f4")
        assert (transcript.size.width, panel.region.right) == (width, 80)
        assert "who wrote the tokens" in driver.shown
        await driver.press("f4")
        assert "who wrote the tokens" not in driver.shown


def byte_round():
    """A round whose first two draft tokens are the bytes of one character."""
    nodes = (
        DraftNode(1, 0, 5, "\ufffd", 0.9, "table"),
        DraftNode(2, 1, 6, "\ufffd", 0.9, "table"),
        DraftNode(3, 2, 7, "\ufffd\ufffd", 0.9, "table"),
    )
    emit = (EmittedToken(5, "", "accepted"), EmittedToken(6, "世", "accepted"))
    own = EmittedToken(8, " x", "corrected")
    return Round(
        DraftProposed(1, 0.1, 0, nodes, 1.0), DraftVerified(1, 0.2, (1, 2), (*emit, own), 1.0, 1, 9)
    )


def test_parts_of_a_character_are_no_replacement_signs_in_the_draft_line():
    labels = [token.label for position in positions(byte_round()) for token in position]
    assert labels == ["…", "世", "…", "x"]


@pytest.mark.parametrize(
    ("environment", "colours", "stored", "theme"),
    [
        ({}, "truecolor", "", "mint"),
        ({}, "256", "", "mint"),
        ({}, "standard", "", "terminal"),
        ({"COLORFGBG": "0;15"}, "truecolor", "", "day"),
        ({"COLORFGBG": "0;default;7"}, "256", "", "day"),
        ({"COLORFGBG": "15;0"}, "truecolor", "", "mint"),
        ({"COLORFGBG": "0;15"}, "standard", "", "terminal-light"),
        ({}, "standard", "dusk", "terminal"),
        ({}, "standard", "day", "terminal-light"),
        ({"COLORFGBG": "0;15"}, "standard", "mint", "terminal"),
        ({}, "standard", "terminal-light", "terminal-light"),
        ({"COLORFGBG": "0;15"}, "256", "dusk", "dusk"),
        ({"COLORFGBG": "rubbish"}, "truecolor", "", "mint"),
    ],
)
def test_the_theme_fits_the_terminal(environment, colours, stored, theme):
    assert theme_for(environment, colours, stored) == theme


async def test_good_news_is_quiet_and_trouble_is_not():
    news = SessionNotice("all is kept", is_trouble=False), SessionNotice("it broke")
    async with running(ScriptedSession(SessionReady(), *news)) as driver:
        assert "· all is kept" in driver.shown
        assert "! it broke" in driver.shown
        assert "! all" not in driver.shown


async def test_every_view_holds_the_source_and_the_x_ray_shows_its_marks():
    async with chat(recorded(), size=(100, 50)) as driver:
        await driver.say("Explain it.")
        message = driver.screen.query(TokenMessage).last()
        for _ in VIEWS:
            assert message.text == MARKDOWN
            assert ("**two**" in driver.shown) == (driver.screen.view.name == "xray")
            message.text_select_all()
            assert driver.screen.get_selected_text().rstrip("\n") == MARKDOWN.rstrip("\n")
            driver.screen.clear_selection()
            await driver.press("f2")


async def test_one_quiet_line_tells_of_a_reply_and_why_it_ended():
    events = recorded()
    events[-1] = replace(events[-1], reason="repeating")
    async with chat(events, size=(100, 30)) as driver:
        await driver.say("Explain it.")
        reply = driver.screen.state.reply
        for gain, words in ((None, "tokens/s"), (1.74, "1.7x the speed"), (0.68, "0.7x the speed")):
            reply.measured = SpeedupMeasured(gain)
            driver.screen.query_one(ReplyFooter).update()
            await driver.settle()
            line = next(row for row in rows(driver.screen) if "% guessed" in row)
            assert words in line
            assert "· stopped: repeating" in line
            assert "TTFT" not in driver.shown
            assert "seed" not in driver.shown
        await driver.press("f2")
        assert "stopped: repeating" in driver.shown


async def test_the_first_page_explains_the_app_and_a_toast_lies_above_the_prompt():
    async with chat(size=(80, 24)) as driver:
        shown = " ".join(driver.shown.split())
        assert "A small drafter guesses, the model checks all guesses in one pass." in shown
        assert "only the wait gets shorter." in shown
        assert "Write a short poem" in shown
        driver.screen.notify("a word", timeout=60)
        await driver.pilot.pause()
        await driver.settle()
        [toast] = driver.screen.query(Toast)
        assert not toast.region.overlaps(driver.screen.query_one(Prompt).region)
        assert toast.region.y < 4
        driver.screen.action_explain()
        await driver.settle()
        assert isinstance(driver.app.screen, HelpScreen)  # no figure is in view


@pytest.mark.parametrize(
    ("environment", "asked", "theme"),
    [
        ({"COLORTERM": "", "TERM": "xterm"}, None, "terminal"),
        ({"COLORTERM": "", "TERM": "xterm"}, "dusk", "dusk"),
        ({"COLORFGBG": "0;15"}, None, "day"),
    ],
)
def test_the_app_has_the_theme_that_fits_the_terminal(monkeypatch, environment, asked, theme):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert MlxspecApp(Screen, asked).theme == theme
