"""The palette: readable on every background, and apart for every kind of colour vision.

The truth here is outside the app: WCAG 2.1 contrast, CIE Lab differences, and the matrices of
Machado, Oliveira and Fernandes 2009 for full protanopia, deuteranopia and tritanopia. Every theme
is judged twice: as it is, and as Rich draws it on a terminal of 256 colours.
"""

from dataclasses import replace
from functools import cache
from itertools import combinations, pairwise, product

import pytest
from rich.color import Color as TerminalColour
from rich.color import ColorSystem
from textual.color import Color
from textual.filter import NoColor

from mlxspec_app.themes import THEMES
from mlxspec_app.widgets.chat.token_message import TokenMessage
from tests.support.app_driver import chat

TOKENS = ("spec-plain", "spec-accepted", "spec-corrected", "spec-bonus", "spec-rejected")
BANDS = ("spec-band-a", "spec-band-b")
GUESSES = ("spec-guess", "spec-guess-loud", "spec-guess-quiet")
OWNS = ("spec-plain", "spec-loud", "spec-muted")  # the same words, if the model wrote them
LEAST_TINT = 9
STEPS = tuple(f"spec-step-{step}" for step in range(1, 6))
VISION = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritan": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
LEAST_DIFFERENCE = {"mint": 27, "day": 16, "dusk": 28, "contrast": 22}
LEAST_STEP = 7  # less than two greys of the ramp of 256 colours
MOST_SHIFT = 10  # levels of a channel: one grey of the ramp


def fewer(colour):
    """The colour in which a terminal of 256 colours shows it."""
    shown = TerminalColour.parse(colour).downgrade(ColorSystem.EIGHT_BIT).get_truecolor()
    return f"#{shown.red:02X}{shown.green:02X}{shown.blue:02X}"


def is_grey(colour):
    return len(set(Color.parse(colour).rgb)) == 1


def in_256(theme):
    """The theme as a terminal of 256 colours shows it."""
    frame = {part: fewer(getattr(theme, part)) for part in FRAME}
    shown = {name: fewer(colour) for name, colour in theme.variables.items()}
    return replace(theme, **frame, variables=shown)


FRAME = ("primary", "secondary", "foreground", "background", "surface", "panel")
OWN = [theme for theme in THEMES if not theme.ansi]
SEEN = [*OWN, *map(in_256, OWN)]
NAMES = [theme.name for theme in OWN]
THEME = pytest.mark.parametrize("theme", SEEN, ids=[*NAMES, *(f"{name}-256" for name in NAMES)])


def linear(colour):
    channels = [channel / 255 for channel in Color.parse(colour).rgb]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


@cache
def contrast(one, other):
    weights = (0.2126, 0.7152, 0.0722)
    lights = sorted(
        sum(w * c for w, c in zip(weights, linear(colour), strict=True)) for colour in (one, other)
    )
    return (lights[1] + 0.05) / (lights[0] + 0.05)


@cache
def lab(colour, vision):
    seen = [
        min(1.0, max(0.0, sum(m * c for m, c in zip(row, linear(colour), strict=True))))
        for row in VISION[vision]
    ]
    to_xyz = [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
    white = (0.95047, 1.0, 1.08883)
    xyz = [sum(m * c for m, c in zip(row, seen, strict=True)) for row in to_xyz]
    f = [
        t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116
        for t in (value / of for value, of in zip(xyz, white, strict=True))
    ]
    return (116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2]))


def difference(one, other, vision):
    pairs = zip(lab(one, vision), lab(other, vision), strict=True)
    return sum((a - b) ** 2 for a, b in pairs) ** 0.5


@THEME
def test_text_is_readable_on_every_background_that_it_has(theme):
    page, bands = (theme.background, theme.surface, theme.panel), BANDS
    for names, grounds in (
        ([*TOKENS, *STEPS], bands),
        ([*GUESSES, "spec-loud"], ()),
        (["spec-muted", "spec-pending"], (*bands, "spec-line")),
    ):
        for name, ground in product(names, (*page, *(theme.variables[each] for each in grounds))):
            assert contrast(theme.variables[name], ground) >= 4.5, (name, ground)


@THEME
def test_guessed_words_differ_from_the_models_own_for_everyone(theme):
    for vision in VISION:
        for guess, own in zip(GUESSES, OWNS, strict=True):
            found = difference(theme.variables[guess], theme.variables[own], vision)
            assert found >= LEAST_TINT, (guess, own, found)
        least = difference(theme.variables["spec-guess"], theme.variables["spec-plain"], vision)
        assert least >= LEAST_DIFFERENCE[theme.name]


@pytest.mark.parametrize("theme", [t for t in THEMES if t.ansi], ids=lambda theme: theme.name)
def test_guessed_words_have_a_colour_of_the_terminals_own_too(theme):
    for guess, own in zip(GUESSES, OWNS, strict=True):
        assert theme.variables[guess] != theme.variables[own]


@THEME
def test_the_frame_is_readable(theme):
    variables = theme.variables
    assert contrast(theme.foreground, theme.background) >= 7
    for part in ("key", "description"):
        words = variables[f"footer-{part}-foreground"]
        assert contrast(words, variables["footer-background"]) >= 4.5, part
    assert contrast(theme.foreground, variables["screen-selection-background"]) >= 4.5
    assert contrast(theme.foreground, variables["spec-line"]) >= 4.5


@THEME
def test_each_step_stands_out_more_than_the_one_before_for_everyone(theme):
    found = [contrast(theme.variables[name], theme.background) for name in STEPS]
    assert all(after > 1.15 * before for before, after in pairwise(found))
    for quieter, louder in pairwise(theme.variables[name] for name in STEPS):
        for vision in VISION:
            assert difference(quieter, louder, vision) >= LEAST_STEP, (quieter, louder, vision)


@THEME
def test_what_lies_beside_each_other_stays_apart(theme):
    band_a, band_b = (theme.variables[band] for band in BANDS)
    assert difference(band_a, band_b, "normal") < 25
    for grounds in (
        (theme.background, theme.surface, theme.panel, band_b),
        (theme.background, band_a, theme.panel, band_b),
        (theme.background, theme.surface, theme.variables["spec-line"], theme.variables["border"]),
        (band_a, band_b, theme.variables["screen-selection-background"]),
    ):
        for one, other in combinations(grounds, 2):
            assert difference(one, other, "normal") > 3, (one, other)


@THEME
def test_the_frame_is_grey(theme):
    frame = theme.variables | {part: getattr(theme, part) for part in FRAME}
    assert {name for name, colour in frame.items() if not is_grey(colour)} == {
        *TOKENS[1:],
        *GUESSES,
    }


@pytest.mark.parametrize("theme", OWN, ids=NAMES)
def test_256_colours_show_what_more_of_them_do(theme):
    for name, colour in theme.variables.items():
        pairs = zip(Color.parse(colour).rgb, Color.parse(fewer(colour)).rgb, strict=True)
        assert max(abs(one - other) for one, other in pairs) <= MOST_SHIFT, name


async def test_all_that_is_painted_stays_grey_and_apart_in_256_colours():
    async with chat(size=(140, 45), view="xray") as driver:
        await driver.say("hello")
        await driver.press("f3", "tab")
        for name in NAMES:
            driver.app.theme = name
            await driver.settle()
            painted = painted_backgrounds(driver)
            assert len({fewer(colour) for colour in painted}) == len(painted) > 3, name
            for keys in (["f1"], ["escape", "f5", "down"], ["escape"]):
                assert all(is_grey(fewer(colour)) for colour in painted_backgrounds(driver)), name
                await driver.press(*keys)


@pytest.mark.parametrize("theme", [t for t in SEEN if t.name == "contrast"], ids=["true", "256"])
def test_the_contrast_theme_keeps_the_enhanced_level(theme):
    grounds = (theme.background, theme.surface, theme.panel, theme.variables[BANDS[1]])
    for name, ground in product(TOKENS, grounds):
        assert contrast(theme.variables[name], ground) >= 7, (name, ground)


@THEME
def test_kinds_of_tokens_look_different_to_everyone(theme):
    for (one, other), vision in product(combinations(TOKENS, 2), VISION):
        found = difference(theme.variables[one], theme.variables[other], vision)
        assert found >= LEAST_DIFFERENCE[theme.name], (one, other, vision)


def test_the_measure_itself_tells_the_obvious_palette_apart_from_a_good_one():
    assert difference("#00d700", "#ffaf00", "protan") < 10
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_there_are_four_themes_and_the_colours_of_the_terminal():
    names = [theme.name for theme in THEMES]
    assert names == ["mint", "day", "dusk", "contrast", "terminal", "terminal-light"]


async def test_the_terminals_own_colours_reach_it_and_themes_of_both_sorts_change_to_each_other():
    async with chat() as driver:
        await driver.say("hello")
        message = driver.screen.query(TokenMessage).last()
        for theme, numbers in (
            ("terminal", [14, 11, 13, 9]), ("mint", []), ("terminal-light", [6, 3, 5, 1]),
            ("day", []), ("terminal", [14, 11, 13, 9]),
        ):  # fmt: skip
            await driver.say(f"/theme {theme}")
            assert driver.app.theme == theme
            for kind, number in zip(("accepted", "corrected", "bonus"), numbers, strict=False):
                assert message._painter.part_style(kind).color == TerminalColour.from_ansi(number)
            rejected = Color.parse(driver.app.theme_variables["spec-rejected"]).ansi
            assert rejected == (numbers[3] if numbers else None)
            assert (painted_backgrounds(driver) <= {"default"}) == bool(numbers)


async def test_no_colour_is_left_of_the_terminals_own_where_none_is_wanted(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with chat() as driver:
        await driver.say("/theme terminal")
        assert any(isinstance(item, NoColor) for item in driver.app.get_line_filters())
        await driver.say("/theme mint")
        assert not any(isinstance(item, NoColor) for item in driver.app.get_line_filters())


def painted_backgrounds(driver):
    """The names of the backgrounds on the screen; rgb() where they are not the terminal's own."""
    strips = driver.app.screen._compositor.render_strips()
    styles = [segment.style for strip in strips for segment in strip]
    return {style.bgcolor.name for style in styles if style is not None and style.bgcolor}


def test_the_page_in_light_shows_accepted_and_bonus_in_two_hues():
    (day,) = (theme for theme in THEMES if theme.name == "day")
    colours = (Color.parse(day.variables[f"spec-{kind}"]) for kind in ("accepted", "bonus"))
    one, other = (colour.hsl.h for colour in colours)
    assert min(abs(one - other), 1 - abs(one - other)) > 0.25  # of the colour circle
