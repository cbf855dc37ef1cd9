"""The light theme, day."""

from mlxspec_app.themes.palette import Palette, make_theme

DAY = make_theme(
    "day",
    Palette(
        plain="#1C1C1C",
        accepted="#005F87",
        corrected="#5F5F00",
        bonus="#000087",
        rejected="#5F0000",
        muted="#585F6B",
        line="#C3C8D1",
        bands=("#F1F3F6", "#E2E7EF"),
        steps=("#5F6672", "#4B515C", "#373C45", "#22262D", "#000000"),
        background="#FBFBFC",
        surface="#F1F3F6",
        panel="#E9ECF1",
        strong="#30343C",
        border="#7A828F",
        selection="#BFD3EA",
    ),
    dark=False,
)
