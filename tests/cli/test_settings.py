"""The settings file and the command line: which says what a chat begins with."""

import io
import sys

import pytest

from mlxspec.params import GenerationParams, SamplingParams
from mlxspec_app.settings.file import Settings
from mlxspec_cli import main, plain_chat
from mlxspec_cli.arguments import generation_params
from mlxspec_cli.commands.chat import filled_in
from mlxspec_cli.parser import build_parser
from tests.support.settings_files import FULL, write


def arguments(*line):
    return build_parser().parse_args(line)


def test_the_file_says_what_the_command_line_leaves_open():
    sampling = {"temperature": 0.7, "top_k": 40, "max_tokens": 64, "presence_penalty": 0.5}
    args = filled_in(arguments("chat"), Settings(model="~/m", drafter="pool", sampling=sampling))
    assert args.model.endswith("/m")
    assert not args.model.startswith("~")
    assert args.drafter == "pool"
    params = generation_params(args)
    assert params.sampling == SamplingParams(temperature=0.7, top_k=40, presence_penalty=0.5)
    assert params.max_tokens == 64


def test_the_command_line_comes_before_the_file():
    settings = Settings(model="theirs", drafter="pool", sampling={"temperature": 0.7, "top_k": 40})
    line = ("chat", "--model", "ours", "--drafter", "none", "--temp", "0", "--top-k", "0")
    args = filled_in(arguments(*line), settings)
    assert (args.model, args.drafter) == ("ours", "none")
    assert generation_params(args).sampling == SamplingParams()


def test_a_draft_model_on_the_command_line_is_what_drafts():
    args = filled_in(arguments("chat", "--draft-model", "small"), Settings(drafter="pool"))
    assert args.drafter is None


def test_generate_has_the_usual_settings():
    params = generation_params(arguments("generate", "--seed", "3"))
    assert params == GenerationParams(seed=3)


@pytest.mark.parametrize("command", ["chat", "generate"])
def test_an_exact_seed_is_asked_for_on_the_command_line(command):
    params = generation_params(arguments(command, "--seed", "3", "--exact-seed"))
    assert params == GenerationParams(seed=3, exact_seed=True)


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """Return the arguments that a plain chat begins with, given those on the command line."""
    write(tmp_path / "settings.toml", FULL.replace("top_k = 40", "top_k = -2"))
    found = []
    monkeypatch.setattr(
        plain_chat, "run_plain", lambda args, params: found.append((args, params)) or 0
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO())  # None would be opened, and closed for all

    def begin(*line):
        assert main.main(["chat", "--plain", "--data-dir", str(tmp_path), *line]) == 0
        return found[-1]

    return begin


def test_a_plain_chat_takes_the_settings_and_tells_what_is_wrong_in_the_file(begun, capsys):
    args, params = begun("--top-p", "0.5")
    assert args.drafter == "suffix"
    assert params.sampling.top_p == 0.5
    assert params.sampling.min_p == 0.05
    assert params.sampling.top_k == 0
    assert "settings.toml: sampling.top_k is -2" in capsys.readouterr().err


def test_a_switch_of_the_template_in_the_file_holds_until_the_command_line_gives_one():
    settings = Settings(sampling={"chat_template_args": "enable_thinking=false"})
    params = generation_params(filled_in(arguments("chat"), settings))
    assert params.chat_template_args == {"enable_thinking": False}
    line = ("chat", "--chat-template-arg", "enable_thinking=true")
    params = generation_params(filled_in(arguments(*line), settings))
    assert params.chat_template_args == {"enable_thinking": True}
    empty = filled_in(arguments("chat"), Settings(sampling={"chat_template_args": ""}))
    assert generation_params(empty).chat_template_args == {}
