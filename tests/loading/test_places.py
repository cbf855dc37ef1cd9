"""Models of other programs on this disk, and one name for each of them."""

import json

import pytest

from mlxspec.errors import ModelNotFoundError
from mlxspec.loading import load_model
from mlxspec.loading.fetch.sources import find_local, find_source, local_places
from mlxspec_cli.main import main
from tests.support.hub_cache import cached_folder
from tests.support.model_folders import save_folder, save_gguf

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
