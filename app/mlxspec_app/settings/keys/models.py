"""The keys of the model picker, in the same form as those of the chat."""

from textual.binding import Binding

MODELS = (
    Binding("escape", "dismiss(None)", "Back", id="models.back", tooltip="back to the chat"),
    Binding(
        "d",
        "make_default",
        "Make default",
        id="models.default",
        tooltip="make this pair the default",
    ),
    Binding(
        "f",
        "fetch",
        "Download",
        id="models.fetch",
        tooltip="download the model that is not here yet, while you chat",
    ),
    Binding(
        "m",
        "measure_again",
        "Measure again",
        id="models.measure",
        tooltip="measure again which drafter is fastest here, and load it",
    ),
    Binding("s", "stop", "Stop download", id="models.stop", tooltip="stop the download"),
    Binding("ctrl+c", "dismiss(None)", "Back", show=False, priority=True),
)
