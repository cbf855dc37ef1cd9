"""The command line and reasoning models: arguments of the template, and the split in JSON."""

import json

import pytest

from mlxspec.trace.events import EmittedToken, GenerationFinished, GenerationStarted, PlainDecoded
from mlxspec_cli.arguments import generation_params
from mlxspec_cli.commands.generate import _Printer
from mlxspec_cli.main import main
from mlxspec_cli.parser import build_parser

PIECES = (("<think>", "mark"), ("hm", "reasoning"), ("</think>", "mark"), ("yes", "answer"))


def parsed(*arguments):
    return generation_params(build_parser().parse_args(["generate", *arguments]))


def test_the_flag_may_repeat_and_its_values_are_json():
    flags = ("--chat-template-arg", "enable_thinking=false", "--chat-template-arg", "effort=low")
    assert parsed(*flags).chat_template_args == {"enable_thinking": False, "effort": "low"}
    assert parsed().chat_template_args == {}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--chat-template-arg", "thinking"), "chat_template_args must be NAME=VALUE"),
        (("--raw", "--chat-template-arg", "a=1"), "--chat-template-arg has no effect with --raw"),
    ],
)
def test_an_argument_that_cannot_work_is_one_line_before_a_model_is_loaded(capsys, flags, message):
    assert main(["generate", "--prompt", "x", "--model", "/nowhere", *flags]) != 0
    told = capsys.readouterr().err
    assert message in told
    assert "Traceback" not in told


def test_json_has_the_text_whole_and_split(capsys):
    choice = type("Choice", (), {"drafter": "none", "speeds": {}, "as_dict": lambda self: {}})()
    printer = _Printer(choice, as_json=True)
    printer.show(GenerationStarted("m", "none"))
    for number, (text, channel) in enumerate(PIECES, 1):
        token = EmittedToken(number, text, "plain", 0.5, None, channel)
        printer.show(PlainDecoded(number, 0.1, (token,), 1.0, number))
    printer.show(GenerationFinished(1.0, "stop", "!"))
    found = json.loads(capsys.readouterr().out)
    assert found["text"] == "<think>hm</think>yes!"
    assert (found["reasoning"], found["answer"]) == ("hm", "yes!")
    assert found["tokens"] == [1, 2, 3, 4]
