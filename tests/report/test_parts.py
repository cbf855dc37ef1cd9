"""What the parts of a report measure, on tiny models and shapes."""

import json
import subprocess
import sys
import time
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.bench.prompts import read_questions
from mlxspec.budget import CostCurve, FixedBudget
from mlxspec.decoder.decoder import Decoder
from mlxspec.device import backend
from mlxspec.drafting.engines import make_drafter_context
from mlxspec.loading import load_model
from mlxspec.params import Options
from mlxspec.report import __main__ as measuring
from mlxspec.report.allowance import Allowance
from mlxspec.report.parts import (
    attention,
    drift,
    first_frame,
    forwards,
    lossless,
    products,
    replies,
)
from mlxspec.report.shapes import BITS, ROWS
from mlxspec_app.bench import startup
from tests.support.broken_rules import say_the_second_best
from tests.support.model_folders import random_weights, save_folder, tiny_config
from tests.support.question_file import save_questions
from tests.support.truth import Target

NO_TIME = 0.0
AMPLE = 1e6


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    """A tiny model in place of the default one, and short questions for it."""
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    folder = save_folder(tmp_path / "tiny")
    questions = read_questions(save_questions(tmp_path))
    for part in (forwards, drift, lossless, replies):
        monkeypatch.setattr(part, "load_model", lambda: load_model(folder))
    for part in (lossless, replies):
        monkeypatch.setattr(part, "read_questions", lambda: questions)
    for name, value in (("_MAX_TOKENS", 8), ("_NUM_DRAWS", 40)):
        monkeypatch.setattr(lossless, name, value)
    even = CostCurve(dict.fromkeys((1, 2, 4, 8, 16, 32), 1.0))  # every draft pays
    monkeypatch.setattr("mlxspec.engine.engine.quick_costs", lambda *arguments: even)
    monkeypatch.setattr(replies, "_TASK", replace(replies._TASK, max_tokens=8))
    return load_model(folder)


def found(part, seconds=AMPLE):
    """What a part yields, by name."""
    return dict(part.measure(Allowance(seconds)))


@pytest.fixture
def seconds_per_row(monkeypatch):
    """Forwards that take as long as told, by the clock that times them; the widths in turn."""
    widths = []

    def timed(forward, turns, *, seconds):
        forward(1)
        widths.append((list(turns), seconds))
        return CostCurve({rows: 100.0 * rows for rows in set(turns)})

    for part in (forwards, products, attention):
        monkeypatch.setattr(part, "fastest_times", timed)
    return widths


# ---- products ----------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(products, "SIZES", ((64, 96), (128, 64)))
    monkeypatch.setattr(products, "_BYTES", 20_000)
    monkeypatch.setattr(backend, "is_cpu", lambda: False)


def test_every_size_has_a_curve_in_every_packing_of_one_product(small, seconds_per_row):
    curves = found(products)
    assert list(curves) == [f"{bits}-bit {size}" for size in ("64x96", "128x64") for bits in BITS]
    assert curves["4-bit 64x96"]["rows"] == sorted(ROWS)
    # 20,000 bytes: six matrices of 3,072, three of 6,144, one of 12,288 take turns.
    assert [curves[f"{bits}-bit 64x96"]["ms"][0] for bits in BITS] == [100 / 6, 100 / 3, 100]
    assert all(turns[:6] == [1, 2, 4, 8, 16, 32] for turns, _ in seconds_per_row)


@pytest.mark.parametrize("bits", BITS)
def test_a_product_is_that_of_the_matrix_it_was_made_from(bits, monkeypatch):
    """To the precision of its packing, against NumPy."""
    matrix = mx.random.normal((96, 64), key=mx.random.key(1))
    rows = mx.random.normal((5, 64), key=mx.random.key(2)).astype(mx.float16)
    monkeypatch.setattr(mx.random, "normal", lambda shape: matrix)
    made = np.array(products._product(bits, 64, 96)(rows).astype(mx.float32))
    expected = np.array(rows.astype(mx.float32)) @ np.array(matrix).T
    error = np.abs(made - expected).max() / np.abs(expected).max()
    assert {16: 0, 8: 1e-4, 4: 0.01}[bits] <= error < {16: 0.002, 8: 0.02, 4: 0.2}[bits]


def test_what_time_does_not_allow_for_is_left_out(small, monkeypatch):
    assert found(products, NO_TIME) == {}
    assert set(found(attention, NO_TIME)) == {"dtype"}


def test_the_time_is_shared_by_all_curves(small, seconds_per_row):
    found(products, 60.0)
    assert [round(seconds) for _, seconds in seconds_per_row] == [10, 12, 15, 20, 30, 60]


# ---- attention ---------------------------------------------------------------------------------


def test_attention_is_timed_with_an_array_and_without_a_mask(monkeypatch, seconds_per_row):
    seen = []

    def attend(queries, keys, values, *, scale, mask):
        seen.append((queries.shape, keys.shape, mask if mask is None else (mask.shape, mask.dtype)))
        return queries

    monkeypatch.setattr(attention, "attend", attend)
    monkeypatch.setattr(attention, "HEADS", {"4 of 8": (4, 2, 8)})
    monkeypatch.setattr(attention, "KEYS", (48,))
    curves = found(attention)
    assert set(curves) == {"dtype", "4 of 8, 48 keys, an array", "4 of 8, 48 keys, no mask"}
    shapes = (1, 4, 1, 8), (1, 2, 48, 8)
    assert seen[:4] == [(*shapes, ((1, 48), mx.bool_))] * 4
    assert seen[4:] == [(*shapes, None)] * 4
    assert curves["4 of 8, 48 keys, no mask"]["ms"][0] == 25.0  # four layers in 100 ms


# ---- forwards ----------------------------------------------------------------------------------


def test_forwards_are_timed_behind_so_many_tokens(loaded, monkeypatch, seconds_per_row):
    monkeypatch.setattr(forwards, "CONTEXTS", (8, 32))
    lengths = []
    verify_forward = forwards.verify_forward

    def noting(decoder):
        lengths.append(len(decoder))
        return verify_forward(decoder)

    monkeypatch.setattr(forwards, "verify_forward", noting)
    figures = found(forwards)
    assert lengths == [8, 32]
    assert figures["behind 8 tokens"]["ms"][0] == 100.0
    assert figures["weights"] == loaded.weights
    assert figures["weights_gb"] == loaded.model.nbytes / 1e9
    assert figures["peak_memory_gb"] > 0


# ---- drift -------------------------------------------------------------------------------------


@pytest.fixture
def letters(loaded, monkeypatch):
    """Texts that the tiny tokenizer can read."""
    monkeypatch.setattr(drift, "PROMPTS", ("abcab" * 8, "cab" * 30))
    return loaded


def test_drift_is_measured_in_each_precision(letters):
    figures = found(drift)
    assert list(figures) == ["float32", "float16", "bfloat16"]
    assert all(one["is_finite"] for one in figures.values())
    assert figures["float32"]["near_tie"] == 4 * figures["float32"]["largest"]
    assert figures["float32"]["largest"] < 1e-3
    assert list(figures["float32"]["by_width"])[:3] == ["1", "2", "3"]
    assert figures["float32"]["largest_state"] != figures["bfloat16"]["largest_state"]


def test_the_largest_number_between_layers_is_that_of_the_target(letters):
    tokens = letters.tokenizer.encode(" ".join(drift.PROMPTS))[:32]
    target = Decoder(letters.model)
    target.observe(tokens)
    _, entering = target.hidden_states([0, 1])
    expected = max(np.abs(np.array(states)).max() for states in entering)
    assert found(drift)["float32"]["largest_state"] == pytest.approx(expected, rel=1e-3)
    assert expected > 0


def test_half_precision_that_holds_no_numbers_is_seen(letters, tmp_path, monkeypatch):
    """An embedding near the edge of float16, which the first layer leaves."""
    weights = random_weights(tiny_config())
    weights["model.embed_tokens.weight"] *= 2e5
    for name in weights:
        if name.endswith("down_proj.weight"):
            weights[name] *= 1e5
    arrays = {name: mx.array(array) for name, array in weights.items()}
    folder = save_folder(tmp_path / "large", weights=arrays)
    monkeypatch.setattr(drift, "load_model", lambda: load_model(folder))
    figures = found(drift)
    assert figures["float32"]["is_finite"]
    assert figures["bfloat16"]["is_finite"]
    assert not figures["float16"]["is_finite"]
    assert figures["float32"]["largest_state"] > 65504


def test_a_precision_that_is_too_slow_is_left_out_and_says_so(letters):
    figures = found(drift, NO_TIME)
    assert figures["float16"]["left_out"].startswith("one row takes")
    assert "near_tie" not in figures["float16"]
    assert figures["float16"]["is_finite"]


# ---- lossless ----------------------------------------------------------------------------------


def test_honest_drafters_are_lossless(loaded):
    figures = found(lossless)
    assert figures["verdict"] in ("bit-identical", "near-ties")
    pool = figures["greedy"]["drafters"]["pool"]
    assert (pool["replies"], pool["the_same"], pool["gaps"]) == (3, 3, [])
    assert pool["accepted"] > 0
    assert [sampling["drafter"] for sampling in figures["sampled"]] == ["plain", "pool"]
    assert [sampling["draws"] for sampling in figures["sampled"]] == [40, 40]
    assert not any(sampling["is_off"] for sampling in figures["sampled"])


def test_a_verdict_in_the_report_sees_a_rule_that_is_broken(loaded, monkeypatch):
    say_the_second_best(monkeypatch)

    def always_drafting(*arguments):
        return make_drafter_context(*arguments, budget=FixedBudget())

    monkeypatch.setattr(replies, "make_drafter_context", always_drafting)
    figures = found(lossless)
    assert figures["verdict"] == "not lossless"
    pool = figures["greedy"]["drafters"]["pool"]
    assert pool["the_same"] < pool["replies"]
    assert max(pool["gaps"]) > figures["greedy"]["near_tie"]
    written = found(replies)["pool"]
    assert written["the_same"] < written["replies"]
    assert max(written["gaps"]) > figures["greedy"]["near_tie"]


def test_without_time_there_is_one_question_and_few_draws_and_a_verdict(loaded):
    figures = found(lossless, NO_TIME)
    assert figures["greedy"]["drafters"]["pool"]["replies"] == 1
    assert figures["sampled"][1]["draws"] == 2  # one for each number of nodes
    assert figures["verdict"]


def test_lists_have_equal_shares_of_the_time_that_is_left():
    now = [0.0]
    shares = lossless.Shares(Allowance(30, lambda: now[0]), 3)
    first = iter(shares(["a", "b"], ""))
    assert next(first) == "a"
    now[0] = 10.0
    assert list(first) == []
    second = iter(shares(["a", "b"], ""))
    now[0] = 19.0
    assert list(second) == ["a", "b"]


# ---- replies -----------------------------------------------------------------------------------


def test_every_drafter_has_its_figures_beside_plain_decoding(loaded):
    figures = found(replies)
    assert list(figures) == ["plain", "pool"]
    assert figures["plain"]["replies"] == figures["pool"]["replies"] == 3
    assert figures["plain"]["tokens_per_forward"] == 1.0
    assert figures["pool"]["the_same"] == 3
    assert figures["pool"]["tokens_per_s"] > 0
    assert figures["pool"]["peak_memory_gb"] > 0


def test_the_plain_replies_are_those_of_the_target(loaded, monkeypatch):
    """What a drafter's replies are compared with: the target recomputed in NumPy."""
    context = make_drafter_context(loaded, Options(), lambda line: None)
    asked = []
    check = replies.check_replies

    def noting(engine, arm, questions, near_tie):
        questions = list(questions)
        asked.extend(questions)
        return check(engine, arm, questions, near_tie)

    monkeypatch.setattr(replies, "check_replies", noting)
    dict(replies.replies_within(Allowance(AMPLE), context))
    assert len(asked) == 3
    for question in asked:
        expected = Target(loaded.model).greedy(list(question.prompt), 8)
        assert list(question.plain) == expected[: len(question.plain)]


def test_without_time_one_reply_is_written_and_drafters_are_left_out(loaded):
    figures = found(replies, NO_TIME)
    assert list(figures) == ["plain"]
    assert figures["plain"]["replies"] == 1


# ---- the first frame, and a part as a process --------------------------------------------------


def test_the_last_line_of_the_apps_measurement_is_what_is_found(monkeypatch):
    asked = []

    def run(command, **more):
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, 'some words\n{"runs": 9, "median_s": 0.2}\n')

    monkeypatch.setattr(subprocess, "run", run)
    assert found(first_frame) == {"runs": 9, "median_s": 0.2}
    assert asked == [(sys.executable, "-m", "mlxspec_app.bench.startup")]


def test_the_apps_measurement_ends_with_one_document(monkeypatch, capsys):
    took = iter([9.0, *[0.1 * n for n in (5, 1, 9, 2, 8, 3, 7, 4, 6)]])
    monkeypatch.setattr(startup, "start", lambda arguments: startup.Start(next(took), 0.25))
    startup.main(["chat"])
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert document["median_s"] == pytest.approx(0.5)
    assert document["worst_s"] == pytest.approx(0.9)
    assert (document["runs"], document["processor_s"]) == (9, 0.25)


def test_a_part_prints_its_findings_and_libraries_do_not_disturb_them(monkeypatch, capsys):
    def measure(allowance):
        print("a library says something")
        yield "left", 1 < allowance.seconds_left <= 5

    monkeypatch.setattr(forwards, "measure", measure)
    measuring.main("forwards", str(time.monotonic() + 5))
    assert capsys.readouterr() == ('["left", true]\n', "a library says something\n")
