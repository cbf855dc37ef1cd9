"""What forwards cost is kept from session to session, for each kind of target on its own."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from mlxspec.budget import CostCurve
from mlxspec.device import backend
from mlxspec.device.speed import machine_key
from mlxspec.drafting.measured import budget_for
from mlxspec.kv.cache import Cache
from tests.support.device_facts import believe_chip
from tests.support.tiny import tiny_model


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path))
    return tmp_path


def budget(weights="float32", cache=None, **shape):
    loaded = SimpleNamespace(config=tiny_model(**shape).config, weights=weights)
    return budget_for(loaded, cache or Cache(2))


def end_with(made, ms):
    made.costs.add(0, CostCurve(ms))
    made.end()


def test_a_later_session_knows_what_an_earlier_one_measured():
    end_with(budget(), {1: 50.0, 16: 80.0})
    assert budget().costs.at(0).ms == {1: 50.0, 16: 80.0}


@pytest.mark.parametrize(
    "other", [{"weights": "4-bit"}, {"cache": Cache(2, max_size=16)}, {"intermediate_size": 96}]
)
def test_another_target_is_measured_on_its_own(other):
    end_with(budget(), {1: 50.0})
    assert budget(**other).costs.at(0) is None


def test_another_version_of_mlx_has_other_kernels_and_is_measured_anew(monkeypatch):
    end_with(budget(), {1: 50.0})
    newer = replace(backend.facts(), mlx="99.0")
    monkeypatch.setattr(backend, "facts", lambda: newer)
    assert budget().costs.at(0) is None


def test_on_a_chip_of_the_table_published_costs_count_until_any_are_measured(monkeypatch):
    believe_chip("Apple M1", monkeypatch.setattr)
    made = budget("4-bit")
    made.begin("pool", 0.0, 0, None)  # a short reply: nothing is measured
    assert made.costs.at(0).ratios[:2] == (1.0, 5.0)
    assert made.recorded(0) is None
    made.end()
    assert budget("4-bit").costs.measured(0) is None
    made.begin("pool", 0.0, 0, lambda: CostCurve({1: 50.0, 5: 60.0}))
    assert made.costs.at(0).ms == {1: 50.0, 5: 60.0}
    made.end()
    assert budget("4-bit").costs.at(0).ms == {1: 50.0, 5: 60.0}


def test_what_is_measured_in_no_time_is_not_kept(folder):
    end_with(budget(), {1: 0.4})
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    "costs",
    [
        {"0": {"1": 10**400}},
        {"0": {"1": float("inf")}},
        {"0": {"1": 5.0, "4": 1e308}},  # sums of such are infinite
        {"0": {"1": 50.0, "1000000": 0.001}},  # rows would be padded to a million
        {"-4": {"1": 50.0}},
        *({"x": {"1": 2}}, {"0": 3}, {"0": {"a": 1}}, {"0": {"1": "x"}}, {"0": {"2": 1.0}}),
    ],
)
def test_figures_that_no_machine_has_are_passed_over(folder, costs):
    end_with(budget(), {1: 50.0})
    path = folder / "measured.json"
    path.write_text(json.dumps(dict.fromkeys(json.loads(path.read_text()), costs)))
    assert budget().costs.curves == {}


@pytest.mark.parametrize("name", ["MLX_ENABLE_TF32", "MLX_SDPA_BLOCKS"])
def test_settings_that_choose_other_kernels_make_another_machine(monkeypatch, name):
    monkeypatch.setenv(name, "0")
    usual = machine_key()
    monkeypatch.setenv(name, "1")
    assert machine_key() not in (usual, "")
    monkeypatch.delenv(name)
    assert machine_key() == usual
