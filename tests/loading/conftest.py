import mlx.core as mx
import pytest

from mlxspec.device import backend
from tests.support.hub_cache import use_hub_cache

GB = 1e9


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A cache folder of its own, in which no model is admitted."""
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory):
    """A cache folder for a file of tests, in which an equal model is examined once."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLXSPEC_HOME", str(folder))
        yield folder


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub whose cache is empty, without a network, and an empty home folder."""
    return use_hub_cache(tmp_path, monkeypatch)


@pytest.fixture
def machine(monkeypatch):
    """Sets what the GPU of a machine recommends, in bytes; 0 for a CPU with so much memory."""

    def set_to(working_set, memory=64 * GB):
        facts = {"max_recommended_working_set_size": int(working_set)}
        monkeypatch.setattr(backend, "is_cpu", lambda: working_set == 0)
        monkeypatch.setattr(backend, "memory_gb", lambda: memory / GB)
        monkeypatch.setattr(mx, "device_info", lambda *_: facts)
        for name in ("set_memory_limit", "set_cache_limit", "set_wired_limit"):
            monkeypatch.setattr(mx, name, lambda limit: limit)

    return set_to
