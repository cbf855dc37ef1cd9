"""`mlxspec serve` as a process: it answers, and a signal ends it cleanly, streams too."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request

import pytest

from mlxspec_server.run import listen
from mlxspec_server.settings import ServerSettings
from tests.support.chat_folders import save_chat_folder

ASK = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100_000, "stream": True}


def request(address, path, body):
    data = json.dumps(body).encode()
    kind = {"content-type": "application/json"}
    return urllib.request.urlopen(
        urllib.request.Request(f"{address}{path}", data, kind), timeout=60
    )


def test_a_signal_ends_it_and_its_streams(tmp_path):
    folder = save_chat_folder(tmp_path / "toy")
    command = [sys.executable, "-m", "mlxspec", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        log = []
        for line in process.stderr:
            log.append(line)
            if found := re.search(r"(http://127\.0\.0\.1:\d+)/v1 answers", line):
                break
        rest = threading.Thread(target=lambda: log.extend(process.stderr))
        rest.start()
        stream = request(found[1], "/v1/chat/completions", ASK)
        assert stream.readline().startswith(b"data: ")
        watch = urllib.request.urlopen(f"{found[1]}/v1/events", timeout=60)
        process.send_signal(signal.SIGTERM)
        assert watch.read()  # it has an end
        assert b"data: " in stream.read()
        assert process.wait(60) == 0
        rest.join()
    assert "Traceback" not in "".join(log)


def test_a_port_that_is_taken_is_said_in_words():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1, port {port}: .*--port"):
            listen(ServerSettings(port=port))
