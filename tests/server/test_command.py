"""`mlxspec serve` before it serves: where it listens, and what it refuses."""

import pytest

from mlxspec_cli.main import main
from mlxspec_cli.parser import build_parser
from mlxspec_server.settings import ServerSettings


def test_it_listens_on_this_machine_alone():
    assert build_parser().parse_args(["serve"]).host == "127.0.0.1"
    assert ServerSettings().host == "127.0.0.1"
    for host in ("localhost", "::1"):
        assert ServerSettings(host=host).is_loopback
    assert ServerSettings(host="0.0.0.0", api_key="k").api_key == "k"
    for host in ("0.0.0.0", "::", "192.168.0.7", "example.org"):
        assert not ServerSettings(host=host, is_insecure=True).is_loopback


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--host", "0.0.0.0"], "give --api-key KEY, or say --insecure"),
        (["--trust-remote-code"], "--trust-remote-code is refused: no code of a model is run"),
        (["a", "--model", "b"], "give one model"),
        (["--port", "70000"], "--port must be between 0 and 65535; got 70000"),
    ],
)
def test_what_it_refuses_it_says_in_one_line(words, message, capsys):
    assert main(["serve", *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
