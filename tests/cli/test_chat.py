"""`mlxspec chat` on the command line."""

import sys

import pytest

from mlxspec.params import GenerationParams
from mlxspec_app.conversation.events import SessionNotice
from mlxspec_app.settings.file import Settings
from mlxspec_cli.commands import chat
from mlxspec_cli.main import main
from mlxspec_cli.output import can_draw
from mlxspec_cli.parser import build_parser


def test_bare_lines_cannot_go_on_with_a_chat_that_they_do_not_keep(capsys):
    assert main(["chat", "--plain", "--continue"]) == 2
    assert "--continue needs the app: bare lines keep no chats" in capsys.readouterr().err


def test_what_loading_a_model_says_is_news_in_the_chat():
    args = chat.filled_in(build_parser().parse_args(["chat"]), Settings())
    session = chat._session(args, GenerationParams())
    session._models.say("drafter pool, fastest of 4 on this machine")
    assert session.drain() == [
        SessionNotice("drafter pool, fastest of 4 on this machine", is_trouble=False)
    ]


@pytest.mark.parametrize(
    ("is_terminal", "kind", "outcome"),
    [(True, "xterm-256color", True), (True, "dumb", False), (False, "xterm-256color", False)],
)
def test_the_app_needs_a_terminal_that_can_draw(monkeypatch, is_terminal, kind, outcome):
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    assert can_draw() == outcome
