"""`mlxspec serve` as a process: it answers, and a signal ends it cleanly, streams too."""

import json
import logging
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from dataclasses import dataclass
from urllib.error import HTTPError

import pytest

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


@dataclass
class Ended:
    """A server that a signal has ended: its log, its exit code, and what it told until then."""

    log: str
    code: int
    watched: bytes
    streamed: bytes


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    folder = save_chat_folder(tmp_path_factory.mktemp("served") / "toy")
    command = [sys.executable, "-m", "mlxspec", "serve", str(folder), "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, **pipes, text=True) as process:
        log = []
        for line in process.stdout:
            log.append(line)
            if found := re.search(r"(http://127\.0\.0\.1:\d+)/v1 answers", line):
                break
        rest = threading.Thread(target=lambda: log.extend(process.stdout))
        rest.start()
        for path, body in REFUSED:
            with pytest.raises(HTTPError):
                request(found[1], path, body)
        stream = request(found[1], "/v1/chat/completions", ASK)
        assert stream.readline().startswith(b"data: ")
        watch = urllib.request.urlopen(f"{found[1]}/v1/events", timeout=60)
        process.send_signal(signal.SIGTERM)
        told = {"watched": watch.read(), "streamed": stream.read()}
        code = process.wait(60)
        rest.join()
    return Ended("".join(log), code, **told)


def test_a_signal_ends_it_and_its_streams(ended):
    assert ended.watched
    assert b"data: " in ended.streamed
    assert ended.code == 0
    assert "Traceback" not in ended.log


def test_the_log_tells_requests_and_no_text_of_a_user(ended):
    assert '"POST /v1/chat/completions HTTP/1.1" 200' in ended.log
    assert '"POST /v1/completions HTTP/1.1" 400' in ended.log
    assert SECRET not in ended.log


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
