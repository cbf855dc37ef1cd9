"""The doctor's report: what it measures, what it says, and what it advises."""

import os
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from mlxspec.budget import CostCurve
from mlxspec.budget.cost import cost_curve, verify_forward
from mlxspec.decoder.decoder import Decoder
from mlxspec.device import backend
from mlxspec.device.blas import STOCK_BLAS
from mlxspec.drafting.auto import Choice
from mlxspec_cli.commands import doctor
from mlxspec_cli.main import main
from tests.support.tiny import tiny_model

FACTS = backend.DeviceFacts(
    device="A Chip",
    backend="cpu",
    blas="OpenBLAS 0.3",
    is_stock_blas=False,
    memory_gb=16.0,
    cores=8,
    system="Linux",
    python="3.12",
    mlx="0.32",
)
STOCK = {"blas": STOCK_BLAS, "is_stock_blas": True}


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Let the doctor see a machine with some of the facts changed, and no default model."""
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path))
    monkeypatch.delenv("MLXSPEC_BLAS", raising=False)

    def set_facts(**changes):
        facts = backend.DeviceFacts(**{**vars(FACTS), **changes})
        monkeypatch.setattr(backend, "facts", lambda: facts)

    set_facts()
    return set_facts


@pytest.fixture
def has_model(monkeypatch):
    monkeypatch.setattr("mlxspec.loading.fetch.default_model.has_default_model", lambda: True)


def advice() -> str:
    return "\n".join(doctor.examine().findings)


def test_a_sound_machine_with_the_model_has_no_findings(machine, has_model):
    assert advice() == ""


def test_a_missing_model_is_named_with_its_cost_and_remedy(machine, tmp_path):
    assert f"not in {tmp_path}: it is downloaded at the first use (93 MB)" in advice()
    assert "`mlxspec models --fetch`" in advice()


def test_the_stock_blas_is_named_with_its_cost_and_remedy(machine, has_model, monkeypatch):
    machine(**STOCK)
    assert "verifying n rows costs n times one row" in advice()
    assert "apt install libopenblas0" in advice()
    monkeypatch.setenv("MLXSPEC_BLAS", "stock")
    assert "Unset MLXSPEC_BLAS" in advice()
    assert "apt" not in advice()


def test_notes_of_the_backend_come_first_and_nothing_is_measured(machine, has_model, capsys):
    machine(**STOCK, notes=("the choice is bad",))
    assert advice().startswith("the choice is bad\nMLX uses the reference BLAS")
    assert "apt" not in advice()
    assert doctor.report_machine() == 1
    assert "! the choice is bad" in capsys.readouterr().out


def test_without_mlx_the_facts_remain(machine):
    machine(backend="none", mlx="", blas="")
    assert "MLX cannot be imported" in advice()
    text = doctor.examine().text
    assert "mlx     not installed (none)" in text
    assert "A Chip, 8 cores, 16.0 GB" in text
    assert "model" not in text


def test_every_fact_has_its_line(machine, tmp_path):
    lines = doctor.examine().text.splitlines()
    assert [line.split()[0] for line in lines] == ["device", "system", "mlx", "blas", "model"]
    assert lines[4].endswith(".gguf (not here)")


def test_it_prints_the_cost_and_returns_0_where_all_is_well(
    machine, has_model, monkeypatch, capsys
):
    choice = Choice("pool", "fastest of 2", {"none": 20.0, "pool": 40.0})
    monkeypatch.setattr(doctor, "fastest_drafter", lambda: choice)
    monkeypatch.setattr(doctor, "measure", lambda speeds: (f"the table of {dict(speeds)}", []))
    assert doctor.report_machine() == 0
    table = "the table of {'none': 20.0, 'pool': 40.0}"
    ending = f"drafter pool, fastest of 2\n\n{table}\n\nEverything is as it should be.\n"
    assert capsys.readouterr().out.endswith(ending)


# ---- the cost curve ----------------------------------------------------------------------------


def test_ratios_are_against_one_row():
    assert CostCurve({1: 20.0, 2: 30.0, 8: 50.0}).ratios == (1.0, 1.5, 2.5)


def test_each_width_is_timed_by_its_median_after_a_warm_up(monkeypatch):
    clock = [0.0]
    seconds = {1: iter([9, 1, 5, 2]), 4: iter([9, 4, 3, 8])}
    order = []

    def forward(width):
        order.append(width)
        clock[0] += next(seconds[width])

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    curve = cost_curve(forward, (1, 4), repeats=3)
    assert curve.ms == {1: 2000.0, 4: 4000.0}
    assert order == [1, 4] * 4


def test_the_default_model_is_measured(own_facts):
    code = (
        "import os; from mlxspec_cli.commands import doctor; os.getloadavg = lambda: (0.0,) * 3; "
        "told, trouble = doctor.measure({'pool': 9.0}); print(told, *trouble, sep='\\n')"
    )
    path = os.pathsep.join(sys.path)
    table = subprocess.check_output(  # in a process of its own, where MLX finds the fast BLAS
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, text=True
    ).splitlines()
    assert table[1].split() == ["rows", "1", "2", "4", "5", "8", "12", "16", "32"]
    assert all(float(ms) > 0 for ms in table[2].split()[1:])
    assert table[3].split()[1] == "1.00"
    if "The machine is busy" in table[-1]:  # other tests may keep the cores
        return
    assert table[5].startswith("gain of drafts over plain decoding: float32 from 4-bit weights ")
    roofline = " ".join(table[7:])
    assert "so a forward over 538 MB of weights takes" in roofline
    assert re.search(r"Reached of that: pool \d+%\.$", roofline)


@pytest.mark.parametrize(("load", "second"), [(20.0, 24.0), (0.3, 9.6)])
def test_figures_of_a_busy_machine_do_not_count(load, second, monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    curve = CostCurve({1: 20.0, 2: second})
    monkeypatch.setattr("mlxspec.budget.cost.cost_curve", lambda forward: curve)
    monkeypatch.setattr("mlxspec.loading.load_model", lambda: SimpleNamespace(model=tiny_model()))
    told, (trouble,) = doctor.measure({})
    assert "gain" not in told
    assert trouble.startswith(f"The machine is busy (load {load:.0f}): these figures do not count")
    assert ("cannot take less time than one" in trouble) == (second < 20)


def test_a_measurement_leaves_the_decoder_as_it_was(forwards):
    decoder = Decoder(tiny_model())
    decoder.observe([1, 2, 3])
    before = forwards.of(decoder.model)
    verify_forward(decoder)(5)
    assert (decoder.history, decoder.cache.num_staged) == ((1, 2, 3), 0)
    assert forwards.of(decoder.model) == before + 1


def test_refuses_a_model_without_hosts_to_measure_it_on(capsys):
    assert main(["doctor", "--model", "some/model"]) != 0
    assert "give --hosts too, or leave it out" in capsys.readouterr().err
