"""What completes our commands: a shell reads it and finds commands, options, choices and files."""

import subprocess
import sys

import pytest
import shtab

from mlxspec_cli.main import main

SHELLS = ["bash", "zsh", "fish", "tcsh"]
COMPLETE = """
source ./script
COMP_WORDS=(mlxspec "$@")
COMP_CWORD=$#
"$(complete -p mlxspec | sed 's/.*-F \\([^ ]*\\).*/\\1/')"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def completed(tmp_path_factory):
    """Asks bash what may stand at the last of some words; files are those of one folder."""
    folder = tmp_path_factory.mktemp("completion")
    made = [sys.executable, "-m", "mlxspec", "completion", "bash"]
    script = subprocess.run(made, capture_output=True, check=True).stdout
    (folder / "script").write_bytes(script)
    (folder / "chats").mkdir()

    def ask(*words):
        command = ["bash", "-c", COMPLETE, "bash", *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        assert done.stderr == ""
        return set(done.stdout.split())

    return ask


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["re"], {"replay"}),
        (["train", "m"], {"medusa"}),
        (["generate", "--dr"], {"--drafter", "--draft-model"}),
        (["generate", "--chain-rule", ""], {"block", "token"}),
        (["generate", "--trace", "s"], {"script"}),
        (["replay", "s"], {"script"}),
        (["export", "--html", ""], {"script", "chats"}),
        (["chat", "--data-dir", ""], {"chats"}),
        (["train", "eval", "--folder", "c"], {"chats"}),
        (["completion", ""], set(SHELLS)),
    ],
    ids=lambda value: " ".join(sorted(value) if isinstance(value, set) else value),
)
def test_bash_completes(completed, words, found):
    assert completed(*words) == found


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_on_offer_gets_a_script_with_all_commands(capsys, shell):
    assert shell in shtab.SUPPORTED_SHELLS
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(word in script for word in ("generate", "draft-model", "doctor"))
