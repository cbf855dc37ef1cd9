"""`mlxspec chat` on the command line."""

import sys

import pytest

from mlxspec_cli.main import main
from mlxspec_cli.output import can_draw


def test_bare_lines_cannot_go_on_with_a_chat_that_they_do_not_keep(capsys):
    assert main(["chat", "--plain", "--continue"]) == 2
    assert "--continue needs the app: bare lines keep no chats" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("is_terminal", "kind", "outcome"),
    [(True, "xterm-256color", True), (True, "dumb", False), (False, "xterm-256color", False)],
)
def test_the_app_needs_a_terminal_that_can_draw(monkeypatch, is_terminal, kind, outcome):
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    assert can_draw() == outcome
