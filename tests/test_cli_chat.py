"""`mlxspec chat` on the command line."""

from mlxspec.cli import main


def test_bare_lines_cannot_go_on_with_a_chat_that_they_do_not_keep(capsys):
    assert main(["chat", "--plain", "--continue"]) == 2
    assert "--continue needs the app: bare lines keep no chats" in capsys.readouterr().err
