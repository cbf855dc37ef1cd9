"""A temporary hub cache without a network, and an empty folder for downloads."""

from functools import partial

from huggingface_hub import scan_cache_dir, snapshot_download

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def use_hub_cache(tmp_path, monkeypatch):
    """Let the loader use a cache below `tmp_path` only; return its folder."""
    cache = tmp_path / "hub"

    def download(repository, *, revision=None, dry_run=False, **kwargs):
        if dry_run:
            return []
        return snapshot_download(
            repository, revision=revision, cache_dir=cache, local_files_only=True
        )

    cache.mkdir()
    monkeypatch.setattr("mlxspec.loading.fetch.hub.snapshot_download", download)
    monkeypatch.setattr(
        "mlxspec.loading.fetch.sources.scan_cache_dir", partial(scan_cache_dir, cache)
    )
    monkeypatch.setenv("HOME", str(tmp_path / "user"))  # without the models of other programs
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    return cache


def cached_folder(hub, repository="org/tiny", *, branch="main", commit=COMMIT):
    """Make the folder of a repository in the hub's cache."""
    folder = hub / f"models--{repository.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "refs" / branch).write_text(commit)
    return snapshot
