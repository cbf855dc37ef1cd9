"""The report of a Mac: what is measured on tiny models and shapes, what it means, and the file."""

import json
import platform
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.bench import mac
from mlxspec.bench.mac_file import (
    FORMAT,
    VERSION,
    Finding,
    Line,
    read_lines,
    to_text,
)
from mlxspec.bench.prompts import read_questions
from mlxspec.budget import CostCurve
from mlxspec.decoder.decoder import Decoder
from mlxspec.device import backend
from mlxspec.errors import MlxspecError
from mlxspec.loading import load_model
from mlxspec.measure.drift import Drift
from mlxspec.trace.difference import Difference
from mlxspec_cli.main import main
from tests.support.bench_arms import NEAR, REAL, case_of, reply_of, result_of, row_of
from tests.support.model_folders import random_weights, save_folder, tiny_config
from tests.support.question_file import save_questions


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    """A tiny model in place of the default one, and short questions for it."""
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    folder = save_folder(tmp_path / "tiny")
    questions = read_questions(save_questions(tmp_path))
    monkeypatch.setattr(mac, "load_model", lambda: load_model(folder))
    monkeypatch.setattr(mac, "read_questions", lambda: questions)
    monkeypatch.setattr(mac, "_MAX_TOKENS", 8)
    monkeypatch.setattr(mac, "_NUM_DRAWS", 20)
    monkeypatch.setattr(mac, "_NUM_NODES", (4,))
    monkeypatch.setattr(mac, "PROMPTS", ("abcab" * 8, "cab" * 30))  # letters that it can read
    even = CostCurve(dict.fromkeys((1, 2, 4, 8, 16, 32), 1.0))  # every draft pays
    monkeypatch.setattr("mlxspec.engine.engine.quick_costs", lambda *arguments: even)
    return load_model(folder)


@pytest.fixture
def seconds_per_row(monkeypatch):
    """A clock by which a row takes 100 ms."""

    def timed(forward, turns, *, seconds):
        forward(1)
        return CostCurve({rows: 100.0 * rows for rows in set(turns)})

    monkeypatch.setattr(mac, "fastest_times", timed)


# ---- the cost of rows --------------------------------------------------------------------------


def test_every_size_has_a_curve_in_every_packing_of_one_product(monkeypatch, seconds_per_row):
    monkeypatch.setattr(mac, "SIZES", ((64, 96), (128, 64)))
    monkeypatch.setattr(mac, "_BYTES", 20_000)
    monkeypatch.setattr(backend, "is_cpu", lambda: False)
    found = mac.costs(mac.products())
    names = [f"{bits}-bit {size}" for size in ("64x96", "128x64") for bits in mac.BITS]
    assert list(found.figures) == names
    # 20,000 bytes: six matrices of 3,072, three of 6,144, one of 12,288 take turns.
    assert [found.figures[name][1] for name in names[:3]] == [100 / 6, 100 / 3, 100]
    assert {line.kind for line in found.lines} == {"as assumed"}


@pytest.mark.parametrize("bits", mac.BITS)
def test_a_product_is_that_of_the_matrix_it_was_made_from(bits, monkeypatch):
    """To the precision of its packing, against NumPy."""
    matrix = mx.random.normal((96, 64), key=mx.random.key(1))
    rows = mx.random.normal((5, 64), key=mx.random.key(2)).astype(mx.float16)
    monkeypatch.setattr(mx.random, "normal", lambda shape: matrix)
    made = np.array(mac._product(bits, 64, 96)(rows).astype(mx.float32))
    expected = np.array(rows.astype(mx.float32)) @ np.array(matrix).T
    error = np.abs(made - expected).max() / np.abs(expected).max()
    assert {16: 0, 8: 1e-4, 4: 0.01}[bits] <= error < {16: 0.002, 8: 0.02, 4: 0.2}[bits]


def test_attention_is_timed_with_an_array_and_without_a_mask(monkeypatch, seconds_per_row):
    seen = []

    def attend(queries, keys, values, *, scale, mask):
        seen.append((queries.shape, keys.shape, mask if mask is None else (mask.shape, mask.dtype)))
        return queries

    monkeypatch.setattr(mac, "attend", attend)
    monkeypatch.setattr(mac, "HEADS", {"4 of 8": (4, 2, 8)})
    monkeypatch.setattr(mac, "KEYS", (48,))
    figures = mac.costs(mac.attention()).figures
    shapes = (1, 4, 1, 8), (1, 2, 48, 8)
    assert seen == [(*shapes, ((1, 48), mx.bool_))] * 4 + [(*shapes, None)] * 4
    assert figures["4 of 8, 48 keys, no mask"][1] == 25.0  # four layers in 100 ms


def test_forwards_are_timed_after_so_many_tokens(loaded, monkeypatch, seconds_per_row):
    monkeypatch.setattr(mac, "CONTEXTS", (8, 32))
    lengths = []
    monkeypatch.setattr(
        mac, "verify_forward", lambda decoder: lengths.append(len(decoder)) or (lambda rows: None)
    )
    figures = mac.forwards().figures
    assert lengths == [8, 32]
    assert figures["forwards after 8 tokens"][1] == 100.0
    assert figures["weights_gb"] == loaded.model.nbytes / 1e9


def test_costs_that_fall_with_more_rows_differ():
    line = mac.rising("x", CostCurve({1: 2.0, 2: 3.0, 4: 2.5}))
    assert line.kind == "differs"
    assert line.text == "x: more rows cost more (4 rows less than 2): 1: 1.00  2: 1.50  4: 1.25"
    assert mac.rising("x", CostCurve({1: 2.0, 2: 1.9})).kind == "as assumed"  # noise


@pytest.mark.parametrize(
    ("device", "begins"),
    [("Apple M2 Max", "M1, M2"), ("Apple M3", "M3 Max"), ("Apple M10", ""), ("AMD EPYC", "")],
)
def test_a_chip_is_compared_with_its_generation(device, begins):
    curve = CostCurve({rows: float(rows) for rows in (1, 3, 4, 5, 8)})
    lines = mac.published("4-bit 4096x11008", curve, device)
    assert bool(lines) == bool(begins)
    assert all(f"4096x11008, {begins}" in line.text for line in lines)


@pytest.mark.parametrize(
    ("ratio", "kind"), [(3.8, "as assumed"), (3.7, "differs"), (6.3, "differs")]
)
def test_a_chip_within_a_quarter_of_what_was_published_is_as_assumed(ratio, kind):
    """On an M1 rows cost as much each: 5 rows 5.0."""
    (line,) = mac.published("4-bit 4096x11008", CostCurve({1: 1.0, 5: ratio}), "Apple M1")
    assert line.kind == kind


# ---- replies -----------------------------------------------------------------------------------


def test_honest_drafters_are_lossless(loaded):
    found = mac.lossless()
    assert [line.kind for line in found.lines] == ["as assumed"]
    (pool,) = found.figures["caches"][0]["agreements"]
    assert (pool["num_replies"], pool["num_same"]) == (3, 3)
    assert [check["fit"]["num_draws"] for check in found.figures["distributions"]] == [20, 20]


@pytest.mark.parametrize(("parting", "kind"), [(NEAR, "as assumed"), (REAL, "BROKEN")])
def test_a_reply_that_no_rounding_explains_is_told_as_broken(loaded, monkeypatch, parting, kind):
    checked = result_of(parting, drift=1e-3)
    monkeypatch.setattr(mac, "check", lambda *asked: checked)
    assert mac.lossless().lines == (Line(kind, checked.verdict_text),)


def test_every_drafter_has_its_figures_beside_plain_decoding(loaded):
    found = mac.replies()
    assert list(found.figures) == ["plain", "pool"]
    assert found.figures["plain"].tokens_per_forward == 1.0
    assert found.figures["pool"].replies == 4
    assert found.lines[0] == Line("as assumed", "replies of pool are plain ones: 4 of 4")
    assert "pool is no slower than plain decoding" in found.lines[1].text


@pytest.mark.parametrize(
    ("difference", "kind"),
    [
        (None, "as assumed"),
        (Difference(1, 2, 3, 0.003, 0.004), "as assumed"),
        (Difference(1, 2, 3, 0.005, 0.004), "BROKEN"),
        (Difference(1, 2, 3, 0.0, 0.0), "BROKEN"),  # where nothing drifts nothing is excused
        (Difference(1, None, 3, None), "BROKEN"),  # one of the two just ends
    ],
)
def test_a_reply_that_leaves_plain_decoding_needs_a_near_tie(difference, kind):
    rows = [row_of(case_of(), "pool", reply_of([1, 2]), differences=(difference,))]
    assert mac.agreement("pool", rows).kind == kind


# ---- precision ---------------------------------------------------------------------------------


def test_drift_is_measured_in_each_precision(loaded):
    found = mac.drift()
    assert list(found.figures) == ["float32", "float16", "bfloat16"]
    assert found.figures["float32"]["drift"].largest < 1e-3
    states = [one["largest_state"] for one in found.figures.values()]
    assert states[0] != states[2]
    target = Decoder(loaded.model)
    target.observe(loaded.tokenizer.encode(" ".join(mac.PROMPTS))[:32])
    _, entering = target.hidden_states([0, 1])
    expected = max(np.abs(np.array(state)).max() for state in entering)
    assert states[0] == pytest.approx(expected, rel=1e-3)


def test_half_precision_that_holds_no_numbers_is_seen(loaded, tmp_path, monkeypatch):
    """An embedding near the edge of float16, which the first layer leaves."""
    weights = random_weights(tiny_config())
    weights["model.embed_tokens.weight"] *= 2e5
    for name in weights:
        if name.endswith("down_proj.weight"):
            weights[name] *= 1e5
    arrays = {name: mx.array(array) for name, array in weights.items()}
    folder = save_folder(tmp_path / "large", weights=arrays)
    monkeypatch.setattr(mac, "load_model", lambda: load_model(folder))
    monkeypatch.setattr(mac, "measure_drift", lambda *asked: Drift((), 0.0, 0.0))
    kinds = {line.text.split()[0]: line.kind for line in mac.drift().lines if "holds" in line.text}
    assert kinds == {"float32": "as assumed", "float16": "differs", "bfloat16": "as assumed"}


# ---- one after the other -----------------------------------------------------------------------

SOUND = Finding({"a": 1.23456789, "worst": float("nan")}, (Line("as assumed", "all is well"),))


def fail():
    raise OSError("cannot read /Users/jane doe/secret")


def test_a_measurement_that_fails_is_told_and_stops_no_other_and_the_file_has_no_path():
    told, saved = [], []
    steps = {"first": fail, "second": lambda: SOUND}
    found = mac.collect(steps, lambda so_far: saved.append(to_text(so_far)), told.append)
    assert found["second"] is SOUND
    assert found["first"].lines == (Line("not measured", "first: OSError"),)
    assert "first is not measured: cannot read /Users/jane doe/secret" in told
    assert len(saved) == 2
    assert "jane" not in saved[-1]


def test_an_interrupt_keeps_what_was_measured(tmp_path, monkeypatch, capsys):
    def interrupt():
        raise KeyboardInterrupt

    steps = {"first": lambda: SOUND, "second": interrupt}
    monkeypatch.setattr(mac, "measurements", lambda _: steps)
    monkeypatch.setattr("mlxspec.loading.fetch_default_model", lambda: None)
    path = tmp_path / "mac.json"
    assert main(["doctor", "--mac-report", str(path)]) == 130
    assert read_lines(path) == list(SOUND.lines)
    assert f"wrote {path}" in capsys.readouterr().err


def test_the_machine_is_told_without_its_name(monkeypatch):
    monkeypatch.setattr(platform, "node", lambda: "janes-mac")
    found = mac.machine()
    assert found.figures["backend"] in ("cpu", "metal")
    text = to_text({"machine": found}).lower()
    for name in ("janes-mac", str(Path.home()), "notes"):
        assert name not in text


def test_the_apps_first_frame_is_compared_with_what_is_assumed():
    assert mac.first_frame(lambda: 0.2).lines[0].kind == "as assumed"
    assert mac.first_frame(lambda: 0.3).lines[0].kind == "differs"


# ---- the file ----------------------------------------------------------------------------------


def test_what_is_written_is_what_is_read(tmp_path, capsys):
    path = tmp_path / "mac.json"
    path.write_text(to_text({"x": SOUND}))
    assert read_lines(path) == list(SOUND.lines)
    assert main(["doctor", "--read-report", str(path)]) == 0
    assert capsys.readouterr().out == "as assumed    all is well\n"
    figures = json.loads(path.read_text())["findings"]["x"]["figures"]
    assert figures == {"a": 1.2346, "worst": None}


def head(**more):
    return json.dumps({"format": FORMAT, "version": VERSION, **more}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe\x00",
        b"[]",
        b'{"format": "another"}',
        b"[" * 100_000,
        head(findings={}) + b" " * 5_000_000,
        head(version=1, findings={}),
        head(),
        head(findings=[]),
        head(findings={"x": {}}),
        head(findings={"x": {"lines": 3}}),
        head(findings={"x": {"lines": [3]}}),
        head(findings={"x": {"lines": [{"kind": "fine", "text": "x"}]}}),
        head(findings={"x": {"lines": [{"kind": "differs", "text": 3}]}}),
    ],
)
def test_a_foreign_or_torn_file_is_a_sentence_and_1(tmp_path, capsys, content):
    path = tmp_path / "mac.json"
    path.write_bytes(content)
    with pytest.raises(MlxspecError, match=r"mac\.json"):
        read_lines(path)
    assert main(["doctor", "--read-report", str(path)]) == 1
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "code"), [("BROKEN", 1), ("differs", 0)])
def test_a_lossless_failure_is_exit_code_1_and_nothing_moves_the_terminal(
    tmp_path, capsys, kind, code
):
    path = tmp_path / "mac.json"
    path.write_text(to_text({"x": Finding({}, (Line(kind, "\x1b[2Jchip"),))}))
    assert main(["doctor", "--read-report", str(path)]) == code
    out = capsys.readouterr().out
    assert kind in out
    assert "\x1b" not in out


def test_a_file_that_is_there_is_left_alone_and_one_that_is_not_is_named(tmp_path, capsys):
    path = tmp_path / "mac.json"
    path.write_text("mine")
    assert main(["doctor", "--mac-report", str(path)]) == 2
    assert f"{path} already exists: name another file" in capsys.readouterr().err
    assert path.read_text() == "mine"
    assert main(["doctor", "--mac-report", str(tmp_path / "no" / "mac.json")]) == 2
    assert main(["doctor", "--read-report", str(tmp_path / "no.json")]) == 1
    assert "no.json cannot be read: No such file" in capsys.readouterr().err
