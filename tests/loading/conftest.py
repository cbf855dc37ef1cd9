import mlx.core as mx
import pytest

from mlxspec.device import backend

GB = 1e9


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
