"""The dark themes: mint, with green for accepted tokens; dusk, without green; and contrast."""

from dataclasses import replace

from mlxspec_app.themes.palette import Palette, make_theme

_MINT = Palette(
    plain="#E0E0E0",
    loud="#FFFFFF",
    guesses=("#AFFFAF", "#D7FFD7", "#87AF87"),
    accepted="#AFFFAF",
    corrected="#D7AF00",
    bonus="#8787D7",
    rejected="#FF5F5F",
    muted="#A0A0A0",
    line="#303030",
    bands=("#121212", "#262626"),
    steps=("#949494", "#AAAAAA", "#C8C8C8", "#E6E6E6", "#FFFFFF"),
    background="#080808",
    surface="#121212",
    panel="#1C1C1C",
    strong="#DCDCDC",
    border="#626262",
    selection="#444444",
)
MINT = make_theme("mint", _MINT, dark=True)
DUSK = make_theme(
    "dusk",
    replace(
        _MINT,
        guesses=("#8787FF", "#AFAFFF", "#8787AF"),
        accepted="#8787FF",
        corrected="#FFAF00",
        bonus="#AF87AF",
    ),
    dark=True,
)
# Tokens of every kind have a contrast of at least 7, the enhanced level of WCAG 2.1.
CONTRAST = make_theme(
    "contrast",
    Palette(
        plain="#FFFFFF",
        loud="#FFFFFF",
        guesses=("#87FF87", "#D7FFD7", "#87D787"),
        accepted="#87FF87",
        corrected="#D7D700",
        bonus="#AFAFFF",
        rejected="#FFAFAF",
        muted="#C8C8C8",
        line="#4E4E4E",
        bands=("#121212", "#262626"),
        steps=("#A0A0A0", "#B8B8B8", "#CFCFCF", "#E7E7E7", "#FFFFFF"),
        background="#000000",
        surface="#121212",
        panel="#1C1C1C",
        strong="#FFFFFF",
        border="#FFFFFF",
        selection="#626262",
    ),
    dark=True,
)
