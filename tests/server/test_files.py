"""No path in a request reaches the disk, whatever field it stands in."""

import os
import sys

import pytest

from tests.support.served import MESSAGES, serving

PATH = "/zqhome/zqsecret.json"
CHAT = {"messages": MESSAGES}
FIELDS = [
    *({name: PATH} for name in ("model", "draft_model", "adapters", "adapter_path", "user")),
    *({name: PATH} for name in ("chat_template", "trust_remote_code", "prediction", "stop")),
    {"chat_template_kwargs": {"chat_template": PATH, "template": PATH, "tools": PATH}},
    {"messages": [{"role": "user", "content": f"{{% include '{PATH}' %}}"}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": PATH}]}]},
    {"messages": [{"role": "user", "content": "a", "name": PATH}]},
    {"response_format": {"type": "json_schema", "schema": {"$ref": f"file://{PATH}"}}},
    {"tools": [{"type": "function", "function": {"name": PATH, "parameters": {"$ref": PATH}}}]},
    {"prompt": PATH},
    {"input": [{"type": "input_file", "file_id": PATH}]},
]
ROUTES = ("chat/completions", "completions", "responses", "messages", "messages/count_tokens")
_opened: list[str] = []
_is_watched = False


def _hear(event, args):
    if _is_watched and event.startswith(("open", "os.", "shutil.", "subprocess.")):
        _opened.append(f"{event} {args}")


sys.addaudithook(_hear)  # it stays for good, and is deaf but for the test


def _heard(real):
    def heard(path, *args, **kwargs):
        _opened.append(f"{real} {path}")
        return real(path, *args, **kwargs)

    return heard


@pytest.fixture
def opened(monkeypatch):
    """What is opened, listed, changed or looked for on the disk."""
    global _is_watched
    for name in ("stat", "lstat", "access", "readlink"):  # these are not audited
        monkeypatch.setattr(os, name, _heard(getattr(os, name)))
    _opened.clear()
    _is_watched = True
    yield _opened
    _is_watched = False


def test_no_path_of_a_request_reaches_the_disk(opened):
    with serving() as client:
        for fields in FIELDS:
            for route in ROUTES:
                body = {**CHAT, "max_tokens": 2, **fields}
                assert client.post(f"/v1/{route}", json=body).status_code in (200, 400, 404)
        for path in (f"/v1/models/..%2f..{PATH}", f"/%2e%2e/%2e%2e{PATH}", PATH):
            assert client.get(path).status_code == 404
    os.path.exists("/zqheard")  # so that a watch that hears nothing is found
    assert any("/zqheard" in line for line in opened)
    assert not [line for line in opened if "zqhome" in line]
