"""From a name to a path: folders, files, hub ids, and the models on this disk."""

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
from mlxspec.loading.fetch.sources import find_local, find_source
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
