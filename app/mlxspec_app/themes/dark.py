"""The dark themes: mint, where green is what was accepted; dusk, without green; and contrast."""

from mlxspec_app.themes.palette import Palette, make_theme

MINT = make_theme(
    "mint",
    Palette(
        plain="#E0E0E0",
        accepted="#AFFFAF",
        corrected="#D7AF00",
        bonus="#8787D7",
        rejected="#FF5F5F",
        muted="#9298A5",
        line="#343A46",
        bands=("#171A21", "#1F2430"),
        steps=("#9298A5", "#A9AEBA", "#C3C7D0", "#E0E3E8", "#FFFFFF"),
        background="#101216",
        surface="#171A21",
        panel="#1C2029",
        strong="#D5DAE3",
        border="#5A6272",
        selection="#3D4A63",
    ),
    dark=True,
)
DUSK = make_theme(
    "dusk",
    Palette(
        plain="#E0E0E0",
        accepted="#8787FF",
        corrected="#FFAF00",
        bonus="#AF87AF",
        rejected="#FF5F5F",
        muted="#9A94A6",
        line="#3B3646",
        bands=("#1A1820", "#25222E"),
        steps=("#9A94A6", "#B1ACBC", "#C9C5D1", "#E3E0E8", "#FFFFFF"),
        background="#121016",
        surface="#1A1820",
        panel="#201D28",
        strong="#DCD8E4",
        border="#686076",
        selection="#4A4263",
    ),
    dark=True,
)
# Whoever wrote it, a token has a contrast of 7 or more, the enhanced level of WCAG 2.1.
CONTRAST = make_theme(
    "contrast",
    Palette(
        plain="#FFFFFF",
        accepted="#87FF87",
        corrected="#D7D700",
        bonus="#AFAFFF",
        rejected="#FFAFAF",
        muted="#C6C6C6",
        line="#4E4E4E",
        bands=("#000000", "#262626"),
        steps=("#A0A0A0", "#B8B8B8", "#CFCFCF", "#E7E7E7", "#FFFFFF"),
        background="#000000",
        surface="#121212",
        panel="#1C1C1C",
        strong="#FFFFFF",
        border="#FFFFFF",
        selection="#303080",
    ),
    dark=True,
)
