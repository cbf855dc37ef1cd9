"""Copying says what is known: pbcopy answers, a terminal never does."""

import subprocess

import pytest

from mlxspec_app.text.clipboard import copy_text


class Terminal:
    """Stands for an app, and keeps what is sent to its terminal."""

    sent = ""

    def copy_to_clipboard(self, text):
        self.sent = text


@pytest.fixture
def pbcopy(monkeypatch):
    """A pbcopy that works, and the environment of a Mac's own screen."""
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    calls = []

    def run(command, **options):
        calls.append(options["input"])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    return calls


def test_pbcopy_is_believed(pbcopy):
    copied = copy_text(Terminal(), "caf\u00e9")
    assert (copied.title, copied.route) == ("Copied", "by pbcopy")
    assert pbcopy == ["caf\u00e9".encode()]


def test_over_ssh_the_terminal_is_asked_and_not_believed(pbcopy, monkeypatch):
    monkeypatch.setenv("SSH_CONNECTION", "here there")
    terminal = Terminal()
    copied = copy_text(terminal, "text")
    assert copied.title == "Sent to the terminal"
    assert "not every terminal accepts it" in copied.route
    assert (terminal.sent, pbcopy) == ("text", [])


@pytest.mark.parametrize(
    "failure", [FileNotFoundError(), subprocess.TimeoutExpired("pbcopy", 2), None]
)
def test_a_pbcopy_that_fails_gives_way_to_the_terminal(pbcopy, monkeypatch, failure):
    def run(command, **options):
        if failure is not None:
            raise failure
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", run)
    terminal = Terminal()
    assert copy_text(terminal, "text").title == "Sent to the terminal"
    assert terminal.sent == "text"


def test_half_a_character_does_not_stop_a_copy(pbcopy, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    terminal = Terminal()
    copy_text(terminal, "a\ud83d")
    assert terminal.sent == "a?"
