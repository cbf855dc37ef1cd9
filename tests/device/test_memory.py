"""What of a Mac's memory is wired, and how much of it MLX may take."""

import platform

import mlx.core as mx
import pytest

from mlxspec.device import backend, memory
from mlxspec.device.memory import Wired, WiredChoiceError, limit_memory, usable_gb, wired_bytes
from mlxspec.params import GenerationParams
from tests.support.tiny import make_engine, tiny_model

GB = 10**9


class Weights:
    """A model of which only the size is known."""

    def __init__(self, gigabytes):
        self.nbytes = gigabytes * GB


# ---- what is wise: a table -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "working_set", "memory", "macos", "setting", "wired"),
    [
        (0.1, 48, 64, "15.1", "", 0),  # small weights are not swapped out
        (24, 48, 64, "15.1", "", 0),  # half of the working set is not above it
        (25, 48, 64, "15.1", "", 25),  # weights, and nothing beside them
        (25, 48, 64, "26.4", "1", 25),
        (40, 48, 64, "15.1", "", 38.4),  # 60 % of the memory
        (60, 48, 64, "15.1", "", 38.4),
        (9, 11.5, 17.2, "15.6", "", 9),  # a Mac with 16 GB
        (11, 11.5, 17.2, "15.6", "", 10.32),
        (30, 20, 64, "15.1", "", 20),  # never above what the system allows
        (25, 48, 64, "15.1", "0", 0),
        (25, 48, 64, "14.7", "", 0),
        (25, 48, 64, "", "", 0),  # no Mac
        (25, 0, 64, "15.1", "", 0),  # a CPU has no working set
    ],
)
def test_large_weights_alone_are_wired(weights, working_set, memory, macos, setting, wired):
    sizes = {"working_set": int(working_set * GB), "memory": int(memory * GB)}
    found = wired_bytes(int(weights * GB), **sizes, macos=macos, setting=setting)
    assert found == pytest.approx(wired * GB)


@pytest.mark.parametrize("setting", ["off", "2", "yes"])
def test_a_choice_that_is_neither_is_refused(setting):
    with pytest.raises(ValueError, match=f"MLXSPEC_WIRED='{setting}' is neither 0, which") as told:
        wired_bytes(1, working_set=1, memory=1, macos="", setting=setting)
    assert isinstance(told.value, WiredChoiceError)


# ---- the process ---------------------------------------------------------------------------


@pytest.fixture
def mac(monkeypatch):
    """A Mac with 64 GB under macOS 15, whose GPU recommends 48; returns the limits wired."""
    limits = []
    facts = {"max_recommended_working_set_size": 48 * GB}
    monkeypatch.setattr(platform, "mac_ver", lambda: ("15.1", ("", "", ""), "arm64"))
    monkeypatch.setattr(backend, "is_cpu", lambda: False)
    monkeypatch.setattr(backend, "memory_gb", lambda: 64.0)
    monkeypatch.setattr(mx, "set_wired_limit", limits.append)
    monkeypatch.setattr(mx, "device_info", lambda *_: facts)
    monkeypatch.setattr(memory, "_process", memory._Process())
    monkeypatch.delenv("MLXSPEC_WIRED", raising=False)
    return limits


def test_the_limit_is_set_once_for_an_engine_and_taken_back_when_it_is_closed(mac):
    wired = Wired(Weights(30))
    assert mac == [30 * GB]
    wired.release()
    wired.release()
    assert mac == [30 * GB, 0]


def test_engines_add_up_and_those_of_one_model_share(mac):
    first, second = Weights(30), Weights(5)
    parts = [Wired(first), Wired(first), Wired(second)]
    assert mac == [30 * GB, 35 * GB]
    parts[0].release()
    assert mac[-1] == 35 * GB
    parts[1].release()
    assert mac[-1] == 0  # the second alone is small


def test_an_engine_that_was_forgotten_has_no_part_in_the_next_limit(mac):
    Wired(Weights(30))
    assert mac == [30 * GB]  # a limit is not changed while others may compute
    part = Wired(Weights(26))
    assert mac == [30 * GB, 26 * GB]
    assert part.model.nbytes == 26 * GB


def test_the_environment_turns_wiring_off(mac, monkeypatch):
    monkeypatch.setenv("MLXSPEC_WIRED", "0")
    Wired(Weights(30)).release()
    assert mac == []


def test_a_reply_changes_no_limit(mac):
    engine = make_engine(tiny_model(), None)
    large = Wired(Weights(30))
    params = GenerationParams(max_tokens=4)
    list(engine.generate([1, 2, 3], params))
    list(engine.generate_batch([[1, 2, 3]], params))
    assert mac == [30 * GB + engine.target.model.nbytes]
    large.release()


def test_an_engine_wires_its_model_when_it_is_made(mac, monkeypatch):
    model = tiny_model()
    facts = {"max_recommended_working_set_size": int(1.5 * model.nbytes)}
    monkeypatch.setattr(mx, "device_info", lambda *_: facts)
    make_engine(model, None)
    assert mac == [model.nbytes]


# ---- limits --------------------------------------------------------------------------------


@pytest.fixture
def limits(mac, monkeypatch):
    """MLX's own limits before anybody set them, by name."""
    set_to = {"memory": 72 * GB, "cache": 72 * GB}

    def setter(name):
        def set_limit(limit):
            before, set_to[name] = set_to[name], limit
            return before

        return set_limit

    monkeypatch.setattr(mx, "set_memory_limit", setter("memory"))
    monkeypatch.setattr(mx, "set_cache_limit", setter("cache"))
    return set_to


@pytest.mark.parametrize(
    ("before", "is_cpu", "after"),
    [
        ((72, 72), False, (48, 6)),  # MLX waits at the working set, and keeps few freed buffers
        ((10, 1), False, (10, 1)),  # lower limits that were set before stay
        ((72, 72), True, (72, 72)),
    ],
)
def test_the_memory_of_a_gpu_is_limited(limits, before, is_cpu, after, monkeypatch):
    limits |= {"memory": before[0] * GB, "cache": before[1] * GB}
    monkeypatch.setattr(backend, "is_cpu", lambda: is_cpu)
    limit_memory()
    assert limits == {"memory": after[0] * GB, "cache": after[1] * GB}


def test_models_may_take_the_working_set_of_a_gpu_and_the_memory_beside_a_cpu(mac, monkeypatch):
    assert usable_gb() == 48.0
    monkeypatch.setattr(backend, "is_cpu", lambda: True)
    assert usable_gb() == 64.0


def test_peak_memory_is_measured_from_the_last_reset():
    mx.eval(mx.zeros((1 << 20,)))
    assert memory.peak_memory_gb(reset=True) >= 0.004
    assert memory.peak_memory_gb() < 0.004
