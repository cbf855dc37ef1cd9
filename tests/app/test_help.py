"""The help page: a long meaning stands beside its name, on as many lines as it takes."""

from textual.content import Content

from mlxspec_app.screens.help import Row


def test_what_does_not_fit_stands_below_the_beginning_of_its_meaning():
    said = "copy the selected text; without a selection end the reply, else quit"
    row = Row(Content(f"Ctrl+C    {said}"), indent=10)
    assert [line.plain.rstrip() for line in row.wrapped(36)] == [
        "Ctrl+C    copy the selected text;",
        "          without a selection end",
        "          the reply, else quit",
    ]
    assert [line.plain for line in Row(Content("short")).wrapped(36)] == ["short"]
    assert [line.plain for line in Row(Content("")).wrapped(36)] == [""]
