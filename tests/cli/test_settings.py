"""What a chat or a reply begins with: the flags, the settings file, and what is said of them."""

import io
import sys

import pytest

from mlxspec.drafting.auto import Choice
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec_app.conversation.events import SessionNotice
from mlxspec_app.settings.file import Settings
from mlxspec_cli import main, plain_chat
from mlxspec_cli.arguments import generation_params
from mlxspec_cli.commands import chat
from mlxspec_cli.commands.chat import filled_in
from mlxspec_cli.output import can_draw
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


@pytest.mark.parametrize("command", ["chat", "generate"])
def test_a_seed_and_an_exact_one_are_asked_for_on_the_command_line(command):
    line = (command, "--seed", "3")
    assert generation_params(arguments(*line)) == GenerationParams(seed=3)
    params = generation_params(arguments(*line, "--exact-seed"))
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
    flag = "--chat-template-arg"  # it may be given again
    line = ("chat", flag, "enable_thinking=true", flag, "effort=low")
    params = generation_params(filled_in(arguments(*line), settings))
    assert params.chat_template_args == {"enable_thinking": True, "effort": "low"}
    empty = filled_in(arguments("chat"), Settings(sampling={"chat_template_args": ""}))
    assert generation_params(empty).chat_template_args == {}


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (("chat", "--plain", "--continue"), 2, "--continue needs the app: bare lines keep no"),
        (("chat", "--plain", "--chat-template-arg", "a"), 2, "chat_template_args must be NAME="),
        (("generate", "x", "--raw", "--chat-template-arg", "a=1"), 2, "has no effect with --raw"),
    ],
)
def test_an_argument_that_cannot_work_is_one_line_before_a_model_is_loaded(
    capsys, monkeypatch, line, code, message
):
    monkeypatch.setattr("mlxspec.api.prepare", lambda *_, **__: pytest.fail("it was loaded"))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert main.main(line) == code
    told = capsys.readouterr().err
    assert message in told
    assert "Traceback" not in told


def test_what_loading_a_model_says_is_news_in_the_chat():
    args = filled_in(arguments("chat"), Settings())
    session = chat._session(args, GenerationParams())
    session._models.say("drafter pool, fastest of 4 on this machine")
    assert session.drain() == [
        SessionNotice("drafter pool, fastest of 4 on this machine", is_trouble=False)
    ]


def test_a_measurement_is_told_when_it_is_made_and_without_its_figures():
    session = chat._session(filled_in(arguments("chat"), Settings()), GenerationParams())
    measured = "fastest of 2 on this machine (times plain in 3 greedy laps: pool 2.00; spread 1%)"
    for reason in (measured, f"{measured}, measured before", "as requested"):
        session._models._tell(Choice("pool", reason))
    told = "drafter pool: fastest of 2 on this machine"
    assert session.drain() == [SessionNotice(told, is_trouble=False)]


@pytest.mark.parametrize(
    ("is_terminal", "kind", "outcome"),
    [(True, "xterm-256color", True), (True, "dumb", False), (False, "xterm-256color", False)],
)
def test_the_app_needs_a_terminal_that_can_draw(monkeypatch, is_terminal, kind, outcome):
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    assert can_draw() == outcome
