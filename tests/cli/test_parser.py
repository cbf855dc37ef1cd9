"""What the parser says of arguments that it does not take: a line, and the flag that was meant."""

import pytest

from mlxspec_cli.main import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "generate --temperature 1 hi",
            "unrecognized argument --temperature: did you mean --temp?",
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
    command = " ".join(["mlxspec", *words[: 2 if words[0] == "train" else 1]])
    assert ended.value.code == 2
    said = f"{command}: {message}\n`{command} --help` lists what it takes\n"
    assert capsys.readouterr().err == said
