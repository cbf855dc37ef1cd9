"""`mlxspec serve`: where it listens, what it refuses and logs, and how a signal ends it."""

import json
import logging
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from urllib.error import HTTPError

import pytest

from mlxspec_cli.main import main
from mlxspec_cli.parser import build_parser
from mlxspec_server.run import _without_texts, listen
from mlxspec_server.settings import ServerSettings
from tests.support.chat_folders import save_chat_folder

SECRET = "zqsecret"
MESSAGES = [{"role": "user", "content": SECRET}]
ASK = {"messages": MESSAGES, "max_tokens": 100_000, "stream": True, "user": SECRET}
REFUSED = [
    (f"/v1/chat/completions?q={SECRET}", {"messages": MESSAGES, "temperature": SECRET}),
    ("/v1/chat/completions", {"messages": MESSAGES, "model": SECRET}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": SECRET}]}]}),
    ("/v1/completions", {"prompt": [SECRET, 5]}),
    ("/v1/messages", {"messages": MESSAGES}),
    ("/v1/responses", {"input": [{"type": SECRET}]}),
]


def request(address, path, body):
    data = json.dumps(body).encode()
    kind = {"content-type": "application/json"}
    return urllib.request.urlopen(
        urllib.request.Request(f"{address}{path}", data, kind), timeout=60
    )


def test_a_signal_ends_it_and_its_streams_and_the_log_has_no_text_of_a_user(tmp_path):
    folder = save_chat_folder(tmp_path / "toy")
    command = [sys.executable, "-m", "mlxspec", "serve", str(folder), "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, **pipes, text=True) as process:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if found := re.search(r"(http://127\.0\.0\.1:\d+)/v1 answers", line):
                break
        rest = threading.Thread(target=lambda: lines.extend(process.stdout))
        rest.start()
        for path, body in REFUSED:
            with pytest.raises(HTTPError):
                request(found[1], path, body)
        stream = request(found[1], "/v1/chat/completions", ASK)
        assert stream.readline().startswith(b"data: ")
        watch = urllib.request.urlopen(f"{found[1]}/v1/events", timeout=60)
        process.send_signal(signal.SIGTERM)
        assert watch.read()
        assert b"data: " in stream.read()
        assert process.wait(60) == 0
        rest.join()
    log = "".join(lines)
    assert "Traceback" not in log
    assert '"POST /v1/chat/completions HTTP/1.1" 200' in log
    assert '"POST /v1/completions HTTP/1.1" 400' in log
    assert SECRET not in log


def test_the_log_has_no_query_and_of_an_error_its_kind_and_place_alone():
    logger, records = logging.Logger("own"), []
    logger.addFilter(_without_texts)
    logger.addHandler(logging.NullHandler())
    logger.handlers[0].handle = records.append
    try:
        raise KeyError(SECRET)
    except KeyError:
        logger.exception("failed on %s", SECRET)
    logger.info("%s %s %d", "POST", f"/v1/models?q={SECRET}", 200)
    error, access = map(logging.Formatter().format, records)
    assert re.fullmatch(r"KeyError at .*test_process\.py, line \d+", error)
    assert access == "POST /v1/models 200"


def test_a_port_that_is_taken_is_said_in_words():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1, port {port}: .*--port"):
            listen(ServerSettings(port=port))


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
def test_a_server_that_would_be_open_or_odd_is_refused_in_one_line(words, message, capsys):
    assert main(["serve", *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
