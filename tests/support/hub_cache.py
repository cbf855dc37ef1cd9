"""A temporary hub cache without a network, and an empty folder for downloads."""

from functools import partial

from huggingface_hub import scan_cache_dir, snapshot_download

from mlxspec.loading.fetch import local, sources

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def use_hub_cache(tmp_path, monkeypatch):
    """Let the loader use a cache below `tmp_path` only; return its folder."""
    cache = tmp_path / "hub"

    def download(repository, *, local_files_only=False, **kwargs):
        return snapshot_download(repository, cache_dir=cache, local_files_only=True)

    cache.mkdir()
    monkeypatch.setattr(sources, "snapshot_download", download)
    monkeypatch.setattr(local, "scan_cache_dir", partial(scan_cache_dir, cache))
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    return cache


def cached_folder(hub, repository="org/tiny"):
    """Make the folder of a repository in the hub's cache."""
    folder = hub / f"models--{repository.replace('/', '--')}"
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    return snapshot
