"""The manual page says what the parser knows, and the wheel has it."""

import re
import shutil
import subprocess
import zipfile

import pytest
from hatchling.builders.wheel import WheelBuilder

from mlxspec_cli.main import main
from tests.support.paths import ROOT


@pytest.fixture
def page(capsys):
    assert main(["man"]) == 0
    return capsys.readouterr().out


def help_of(capsys, *words):
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    return capsys.readouterr().out


def section(page, command):
    return page.split(f'.SS "mlxspec {command}"\n')[1].split("\n.S")[0].replace("\\-", "-")


def test_the_wheel_has_the_page(page, tmp_path):
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(built) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith("share/man/man1/mlxspec.1")]
        assert wheel.read(name).decode() == page


def test_every_command_has_a_section_of_its_own(page, capsys):
    words = re.findall(r"^    ([\w-]+)(?:  |$)", help_of(capsys), re.MULTILINE)
    sections = re.findall(r'^\.SS "mlxspec ([\w -]+)"$', page, re.MULTILINE)
    assert [name for name in sections if " " not in name] == words
    assert "train draft-model" in sections


@pytest.mark.parametrize("command", ["chat", "train eval"])
def test_a_command_has_the_options_and_the_texts_of_its_help(page, capsys, command):
    told = help_of(capsys, *command.split(" "))
    options = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", told, re.MULTILINE)) - {
        "--help",
        "--debug",
    }
    there = section(page, command)
    assert len(options) > 4
    assert {option for option in options if rf"\fB{option}\fR" not in there} == set()
    assert r"\fB-c\fR, \fB--continue\fR" in there or command != "chat"
    assert r"\fB--max-tokens\fR \fICOUNT\fR" in there or "--max-tokens" not in options


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not here")
def test_groff_has_nothing_to_say_against_the_page(page):
    drawn = subprocess.run(
        ["groff", "-man", "-Tascii", "-ww", "-P-cbou"], input=page, capture_output=True, text=True
    )
    assert drawn.stderr == ""
    assert re.search(r"^ +--html OUT$", drawn.stdout, re.MULTILINE)
