"""The README lists the keys and commands that the app has."""

import pytest

from mlxspec_app.commands import COMMANDS
from mlxspec_app.manual import BEGIN, END, main, reference, updated
from mlxspec_app.settings.keys.chat import CHAT
from tests.support.paths import ROOT

README = ROOT / "README.md"


def test_the_readme_is_up_to_date():
    text = README.read_text(encoding="utf-8")
    assert text == updated(text), "run `python -m mlxspec_app.manual README.md`"


def test_every_command_and_every_key_of_the_chat_is_listed():
    made = reference()
    assert all(f"| `{command.usage}` | {command.meaning}" in made for command in COMMANDS)
    assert all(f" | {binding.tooltip} |" in made for binding in CHAT)


def test_nothing_is_listed_twice():
    rows = [line for line in reference().splitlines() if line.startswith("| `")]
    assert len(set(rows)) == len(rows)


def test_only_what_stands_between_the_marks_is_replaced(tmp_path):
    document = tmp_path / "page.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    main([str(document)])
    assert document.read_text() == f"before\n{BEGIN}\n\n{reference()}\n\n{END}\nafter\n"


@pytest.mark.parametrize("text", ["", BEGIN, END])
def test_a_document_without_marks_is_refused(text):
    with pytest.raises(ValueError, match="the tables go between the lines"):
        updated(text)
