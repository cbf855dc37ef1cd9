"""The light theme, day."""

from mlxspec_app.themes.palette import Palette, make_theme

DAY = make_theme(
    "day",
    Palette(
        plain="#1C1C1C",
        loud="#000000",
        guesses=("#005F87", "#0000AF", "#5F5F87"),
        accepted="#005F5F",
        corrected="#5F5F00",
        bonus="#870087",
        rejected="#5F0000",
        muted="#4E4E4E",
        line="#D2D2D2",
        bands=("#F0F0F0", "#DCDCDC"),
        steps=("#585858", "#444444", "#303030", "#1C1C1C", "#000000"),
        background="#FFFFFF",
        surface="#F0F0F0",
        panel="#E6E6E6",
        strong="#303030",
        border="#808080",
        selection="#BEBEBE",
    ),
    dark=False,
)
