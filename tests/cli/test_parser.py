"""What the parser says of arguments that it does not take: a line, and the flag that was meant."""

import shlex

import pytest

from mlxspec_cli.main import main
from mlxspec_cli.parser import _COMMANDS, build_parser, examples_of

SHOWN = [*(name for name in _COMMANDS if name != "doctor"), "train"]
ALL = ", ".join([*_COMMANDS, "train", "completion", "man"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "generate --temperature 1 hi",
            "unrecognized argument --temperature: did you mean --temp?",
        ),
        ("chta --temp 1", "argument COMMAND: 'chta' is not known; did you mean chat?"),
        ("frobnicate", f"argument COMMAND: 'frobnicate' is not known; choose from {ALL}"),
        (
            "generate --dtype flaot16 hi",
            "argument --dtype: 'flaot16' is not known; did you mean float16?",
        ),
        ("serve --hots=a", "unrecognized argument --hots: did you mean --hosts?"),
        ("train eval --zzzzzz 3", "unrecognized argument --zzzzzz"),
        ("generate --temp abc hi", "argument --temp: invalid float value: 'abc'"),
        ("export", "the following arguments are required: TRACE"),
    ],
)
def test_an_argument_that_is_not_taken_is_one_line_and_a_way_on(arguments, message, capsys):
    words = arguments.split()
    with pytest.raises(SystemExit) as ended:
        main(words)
    num_words = {"train": 2, "chta": 0, "frobnicate": 0}.get(words[0], 1)
    command = " ".join(["mlxspec", *words[:num_words]])
    assert ended.value.code == 2
    said = f"{command}: {message}\n`{command} --help` lists what it takes\n"
    assert capsys.readouterr().err == said


def parsed(line):
    """Parse what a shell would hand over."""
    return build_parser().parse_args(shlex.split(line.rpartition("|")[2])[1:])


@pytest.mark.parametrize("command", ["mlxspec", *(f"mlxspec {name}" for name in SHOWN)])
def test_the_help_begins_with_examples_that_the_parser_takes(command, capsys):
    with pytest.raises(SystemExit):
        main([*command.split()[1:], "--help"])
    head, _, rest = capsys.readouterr().out.partition("\nusage: ")
    lines = head.splitlines()[1:]
    assert lines == [f"  {example}" for example in examples_of(command)] != []
    assert rest.startswith(command)
    for example in examples_of(command):
        line = example.partition("   ")[0]
        assert command == "mlxspec" or line.rpartition("| ")[2].startswith(command)
        assert parsed(line).command in _COMMANDS | {"train": None}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--temp 9", "--temp must be from 0 to 2, as more is noise; got 9"),
        ("--temp -1", "--temp must be from 0 to 2, as more is noise; got -1"),
        ("--top-p 1.5", "top_p must be at least 0 and at most 1; got 1.5"),
        ("--presence-penalty 50", "--presence-penalty must be from -2 to 2, 0 for none; got 50"),
        ("--repetition-penalty 0", "--repetition-penalty must be more than 0, at most 2"),
        ("--max-tokens -1", "max_tokens must be 0 or more; got -1"),
        ("--num-draft-tokens 256", "num_draft_tokens must be from 0 (plain decoding) to 255"),
    ],
)
def test_a_number_out_of_bounds_is_one_line_before_a_model_is_loaded(words, message, capsys):
    assert main(["generate", "--model", "no/such/model", *words.split(), "--prompt", "hi"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"mlxspec: {message}")
    assert said.count("\n") == 1
