"""From a name to a path: folders, files, hub ids, downloads, and the models on this disk.

Downloads come from a local hub by the real client: complete, stopped, resumed, offline. Models of
other programs on this disk have one name each.
"""

import json
import os
import subprocess
import sys
from functools import partial
from types import MappingProxyType

import pytest
from huggingface_hub import scan_cache_dir
from huggingface_hub.errors import (
    GatedRepoError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from mlxspec.errors import ModelNotFoundError
from mlxspec.loading import Changes, list_local_models, load_model
from mlxspec.loading.fetch.sources import find_local, find_source, local_places
from mlxspec_cli.main import main
from tests.support.fake_hub import fetch_from, serving
from tests.support.hub_cache import COMMIT, cached_folder
from tests.support.model_folders import save_folder, save_gguf, save_json, tiny_config


def test_a_folder_and_a_file_are_found_by_their_paths(tmp_path):
    file = tmp_path / "some.Q4_0.gguf"
    file.write_bytes(b"")
    assert find_source(tmp_path).path == tmp_path
    assert find_source(str(file)).name == "some.Q4_0"


@pytest.mark.parametrize(
    "name",
    [
        *("no/such/place", "./here", "a b", "", "org/model.gguf", "/no/such/place"),
        *("org/..", "org/../../up", "org/..\\up", "C:\\up"),
    ],
)
def test_anything_else_is_refused_with_what_is_allowed(name):
    with pytest.raises(ModelNotFoundError, match="give a folder, a GGUF file, a hub id"):
        find_source(name)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("lfm2.5-1.2b-instruct", "mlx-community/LFM2.5-1.2B-Instruct-4bit"),
        ("qwen3.5-4b", "mlx-community/Qwen3.5-4B-MLX-4bit"),
        ("mlx-comunity/Qwen3-8B-4bit", "mlx-community/Qwen3-8B-4bit"),
        ("org/tinny", "org/tiny"),
        ("zzzz", ""),
    ],
)
def test_a_name_next_to_a_model_names_that_model(hub, typed, meant):
    save_folder(cached_folder(hub, "org/tiny"))
    with pytest.raises(ModelNotFoundError) as refused:
        find_source(typed)
    assert str(refused.value).endswith(f"; did you mean {meant}?") == bool(meant)
    assert ("did you mean" in str(refused.value)) == bool(meant)


@pytest.mark.parametrize("name", ["no/such/place", "a..b/c--d", "org/elsewhere", "default", ""])
def test_what_is_not_here_is_not_found_and_not_fetched(hub, name):
    assert find_local(name) is None


def test_a_revision_of_a_hub_model_is_its_own_folder(hub):
    save_folder(cached_folder(hub))
    other = save_folder(cached_folder(hub, branch="v2", commit="f" * 40))
    for revision, commit in ((None, COMMIT), ("main", COMMIT), ("v2", "f" * 40), ("f" * 40,) * 2):
        assert find_source("org/tiny", revision=revision).revision == commit
    assert load_model("org/tiny", changes=Changes(revision="v2")).revision == other.name
    with pytest.raises(ModelNotFoundError, match="org/tiny"):
        find_source("org/tiny", revision="v3")


def test_a_hub_model_needs_no_network_once_it_is_cached(hub):
    with pytest.raises(ModelNotFoundError, match="org/tiny is not cached and cannot be downloaded"):
        find_source("org/tiny")
    save_folder(cached_folder(hub))
    loaded = load_model("org/tiny")
    assert (loaded.name, loaded.revision) == ("org/tiny", COMMIT)


class Response:
    """As much of an HTTP response as the hub's errors look at."""

    headers = MappingProxyType({})
    request = None
    status_code = 404


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (RevisionNotFoundError("404", response=Response()), "no revision 'v3': give a branch"),
        (RepositoryNotFoundError("404", response=Response()), "no such model on the hub"),
        (GatedRepoError("403", response=Response()), "accepted its terms"),
        (LocalEntryNotFoundError("Got: ConnectError\nmore"), r"downloaded \(Got: ConnectError\)"),
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
)
def test_each_error_of_the_hub_has_its_own_message(hub, monkeypatch, error, part):
    def download(repository, *, local_files_only=False, **kwargs):
        if local_files_only:
            raise LocalEntryNotFoundError("not here")
        raise error

    monkeypatch.setattr("mlxspec.loading.fetch.hub.snapshot_download", download)
    with pytest.raises(ModelNotFoundError, match=part):
        find_source("org/tiny", revision="v3")


# ---- what is here ------------------------------------------------------------------------------


def test_lists_runnable_and_other_models_with_the_reason(hub):
    save_folder(cached_folder(hub, "org/tiny"))
    other = cached_folder(hub, "org/other")
    save_json(other / "config.json", tiny_config() | {"model_type": "gemma3"})
    models = {model.source: model for model in list_local_models()}
    assert models["org/tiny"].problem == ""
    assert models["org/tiny"].size_gb > 0
    assert "gemma3" in models["org/other"].problem


def test_lists_gguf_files_of_the_cache(hub):
    folder = cached_folder(hub, "org/files")
    whole = save_gguf(folder / "good.gguf").read_bytes()
    (folder / "torn.gguf").write_bytes(whole[:100])
    good, torn = list_local_models()
    assert (good.source, good.problem) == (str(folder / "good.gguf"), "")
    assert "not a whole GGUF file" in torn.problem


def test_nothing_here_is_an_empty_list(hub, monkeypatch):
    monkeypatch.setattr(
        "mlxspec.loading.fetch.sources.scan_cache_dir", partial(scan_cache_dir, hub / "missing")
    )
    assert list_local_models() == []


WEIGHTS = "application/vnd.ollama.image.model"


@pytest.fixture
def home(tmp_path, hub):
    """An empty home folder."""
    return tmp_path / "user"


def folder(path):
    path.mkdir(parents=True, exist_ok=True)
    return path


def gguf(path):
    folder(path.parent)
    save_gguf(path)
    return path


def ollama(root, name, digest="sha256:abc", owner="library", media=WEIGHTS):
    """Write a manifest of Ollama and the file that it names."""
    model, tag = name.split(":")
    manifest = folder(root / "manifests" / "registry" / owner / model) / tag
    layers = [{"mediaType": "text", "digest": "sha256:1"}, {"mediaType": media, "digest": digest}]
    manifest.write_text(json.dumps({"layers": layers}))
    gguf(root / "blobs" / digest.replace(":", "-"))
    return manifest


def names():
    return [(place.name, place.source) for place in local_places()]


def test_folders_and_files_of_lm_studio_are_found_behind_the_hub_and_the_default_model(home):
    gguf(home.parent / "home" / "SmolLM2-135M-Instruct.Q4_1.gguf")
    save_folder(cached_folder(home.parent / "hub"))
    root = home / ".lmstudio/models/org"
    mlx = save_folder(folder(root / "tiny-4bit"))
    file = gguf(root / "tiny-gguf" / "tiny-Q4_K_M.gguf")
    gguf(root / "tiny-gguf" / "mmproj-tiny.gguf")
    assert names() == [
        ("SmolLM2-135M-Instruct", "default"),
        ("org/tiny", "org/tiny"),
        ("tiny-4bit", str(mlx)),
        ("tiny-Q4_K_M", str(file)),
    ]


def test_names_of_ollama_stand_for_the_files_of_their_manifests(home):
    root = home / ".ollama/models"
    ollama(root, "qwen2.5:0.5b")
    ollama(root, "tiny:latest", "sha256:def", owner="someone")
    ollama(root, "embed:latest", "sha256:123", media="something else")
    (root / "manifests/registry/library/qwen2.5/torn").write_text("{")
    (root / "manifests/registry/library/qwen2.5/odd").write_text('{"layers": [7]}')
    assert names() == [("qwen2.5:0.5b",) * 2, ("someone/tiny:latest",) * 2]
    found = find_source("qwen2.5:0.5b")
    assert found.path == root / "blobs" / "sha256-abc"
    assert load_model("qwen2.5:0.5b").name == "qwen2.5:0.5b"


def test_ollama_is_looked_for_where_its_variable_says(home, tmp_path, monkeypatch):
    ollama(tmp_path / "elsewhere", "a:b")
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "elsewhere"))
    assert names() == [("a:b", "a:b")]


def test_a_manifest_names_no_file_outside_of_its_folder(home):
    root = home / ".ollama/models"
    manifest = ollama(root, "a:b")
    secret = gguf(home / "secret")
    layers = [{"mediaType": WEIGHTS, "digest": f"{'../' * 3}{secret.name}"}]
    manifest.write_text(json.dumps({"layers": layers}))
    assert names() == []


def test_plain_files_in_the_usual_folders_are_found_with_their_first_part_alone(home):
    one = gguf(home / "Downloads" / "one.gguf")
    two = gguf(home / "models" / "deep" / "two-00001-of-00002.gguf")
    gguf(home / "models" / "deep" / "two-00002-of-00002.gguf")
    (home / "Downloads" / "letter.txt").write_text("no model")
    assert names() == [("two-00001-of-00002", str(two)), ("one", str(one))]


def test_a_file_that_several_folders_share_is_one_model(home):
    one = gguf(home / "models" / "one.gguf")
    folder(home / "Downloads")
    (home / "Downloads" / "other.gguf").symlink_to(one)
    (home / "Downloads" / "broken.gguf").symlink_to(home / "gone")
    assert names() == [("one", str(one))]


# ---- names ---------------------------------------------------------------------------------


def test_the_name_in_the_header_of_a_chat_is_accepted_everywhere(home, capsys):
    file = gguf(home / "models" / "tiny-Q4_0.gguf")
    name = load_model(file).name
    assert load_model(name).name == name
    assert find_local(name).path == file
    assert main(["models", name]) == 0
    assert "pool" in capsys.readouterr().out


def test_a_name_that_several_models_have_is_refused_with_their_sources(home, capsys):
    first, second = (gguf(home / "models" / owner / "tiny.gguf") for owner in "ab")
    with pytest.raises(ModelNotFoundError, match=f"give one of {first}, {second}"):
        find_source("tiny")
    assert main(["models", "tiny"]) == 1
    assert "is the name of several models here" in capsys.readouterr().err
    assert main(["models", "nobody"]) == 2
    assert "is not here" in capsys.readouterr().err


BIG = bytes(range(256)) * (96 << 10)  # 24 MiB; the client reports after each 10 MiB


class StoppedError(Exception):
    """The user does not want to wait."""


@pytest.fixture
def remote(tmp_path, monkeypatch):
    """A hub that holds a tiny model, a page that nobody needs, and one large file of weights."""
    folder = save_folder(tmp_path / "original")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    files |= {"README.md": b"# tiny", "model.safetensors": BIG}
    with serving(files) as remote:
        fetch_from(monkeypatch, tmp_path, remote.url)
        yield remote


def stop_in_the_large_file(done, total):
    if done > 10 << 20:
        raise StoppedError


def test_only_what_is_needed_is_fetched_and_only_once(remote, capsys):
    seen = []
    find_source("org/tiny", lambda done, total: seen.append((done, total)))
    assert "README.md" not in remote.sent
    assert seen[-1][0] == seen[-1][1] > len(BIG)
    remote.sent.clear()
    find_source("org/tiny")
    assert remote.sent == []
    assert capsys.readouterr().err == ""


def test_what_was_fetched_needs_no_network_any_more(remote, tmp_path, monkeypatch):
    whole = find_source("org/tiny", lambda done, total: None)
    fetch_from(monkeypatch, tmp_path, "http://127.0.0.1:9")
    assert find_source("org/tiny") == find_local("org/tiny") == whole


def test_a_stopped_download_goes_on_where_it_was_stopped_in_another_run_too(remote):
    with pytest.raises(StoppedError):
        find_source("org/tiny", stop_in_the_large_file)
    seen = []
    found = find_source("org/tiny", lambda done, total: seen.append((done, total)))
    assert (found.path / "model.safetensors").read_bytes() == BIG
    assert remote.starts[:2] == [("model.safetensors", 0), ("model.safetensors", 10 << 20)]
    (locks,) = found.path.parents[2].glob(".locks/*")
    assert locks.stat().st_mode == found.path.stat().st_mode  # a cache may be shared
    assert seen[0] == (10 << 20, seen[-1][1])
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]


FETCH = """
import os, sys
from mlxspec.loading.fetch.sources import find_source
most = int(sys.argv[1])
find_source("org/tiny", lambda done, total: os._exit(9) if most < done < total else None)
"""


def test_a_program_that_was_killed_in_a_download_goes_on_at_its_next_start(remote, tmp_path):
    own = {"HF_ENDPOINT": remote.url, "HF_HUB_CACHE": str(tmp_path / "killed")}
    for most, code in ((10 << 20, 9), (1 << 40, 0)):
        command = [sys.executable, "-c", FETCH, str(most)]
        assert subprocess.run(command, env={**os.environ, **own}, check=False).returncode == code
    (found,) = (tmp_path / "killed").rglob("snapshots/*/model.safetensors")
    assert found.read_bytes() == BIG
    starts = [start for name, start in remote.starts if name == "model.safetensors"]
    assert starts == [0, 10 << 20]


def test_a_connection_that_drops_twice_is_taken_up_again(remote, monkeypatch):
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    remote.drops += [11 << 20, 21 << 20]
    found = find_source("org/tiny", lambda done, total: None)
    assert (found.path / "model.safetensors").read_bytes() == BIG
    starts = [start for name, start in remote.starts if name == "model.safetensors"]
    assert starts == [0, 10 << 20, 20 << 20]


def test_a_file_with_other_content_is_refused_and_begins_anew(remote):
    remote.lies["model.safetensors"] = BIG[:-1] + b"!"
    with pytest.raises(ModelNotFoundError, match=r"damaged on its way .* download it again"):
        find_source("org/tiny", lambda done, total: None)
    remote.lies.clear()
    found = find_source("org/tiny", lambda done, total: None)
    assert (found.path / "model.safetensors").read_bytes() == BIG
    assert ("model.safetensors", 0) in remote.starts[1:]


def test_a_download_without_room_is_not_begun(remote, monkeypatch):
    usage = type("Usage", (), {"free": 5_000_000})
    monkeypatch.setattr("shutil.disk_usage", lambda place: usage)
    with pytest.raises(ModelNotFoundError, match=r"takes 25 MB, .* has 5 MB free: make room"):
        find_source("org/tiny", lambda done, total: None)
    assert remote.sent == []


@pytest.mark.parametrize("lost", ["tokenizer.json", "model.safetensors"])
def test_a_file_that_did_not_come_along_is_fetched(remote, lost):
    folder = find_source("org/tiny", lambda done, total: None).path
    (folder / lost).unlink()
    remote.sent.clear()
    find_source("org/tiny", lambda done, total: None)
    assert (folder / lost).is_file()
