"""The figures of batches: who writes, what is compared, what is printed."""

import pytest

from mlxspec.budget import CostCurve
from mlxspec.drafting.engines import make_drafter_context
from mlxspec.loading import load_model
from mlxspec.params import GenerationParams, Options
from mlxspec.trace.difference import Difference
from tests.campaigns.batching import (
    Speed,
    as_text,
    main,
    make_arms,
    measure,
    mlx_lm_arm,
    own_prompts,
)
from tests.support.model_folders import save_folder, tiny_config

PARAMS = GenerationParams(max_tokens=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    config = tiny_config(max_position_embeddings=1024)  # for mlx-lm no context is ever full
    return save_folder(tmp_path_factory.mktemp("bench") / "tiny", config)


@pytest.fixture
def context(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path))
    monkeypatch.setattr(
        "mlxspec.engine.engine.quick_costs", lambda *_: CostCurve({1: 1.0, 32: 2.0})
    )
    return make_drafter_context(load_model(folder), Options(drafter="none"), print)


def test_all_arms_write_the_same(context):
    arms = make_arms(context) | {"mlx-lm": mlx_lm_arm(context)}
    speeds = measure(context, arms, own_prompts(context, 3), PARAMS, repeats=2)
    names = ["one by one, none", "one by one, pool", "batch, none", "batch, pool", "mlx-lm"]
    assert [speed.arm for speed in speeds] == names
    assert [speed.differences for speed in speeds] == [()] * 5
    assert all(speed.tokens_per_s > 0 for speed in speeds)


def test_an_arm_that_writes_something_else_is_told(context):
    (name, write), *_ = make_arms(context, ["none"]).items()

    def wrong(prompts, params):
        first, *others = write(prompts, params)
        return [[(first[0] + 1) % 24, *first[1:]], *others]

    own, other = measure(context, {name: write, "wrong": wrong}, own_prompts(context, 2), PARAMS)
    assert own.differences == ()
    assert [difference.index for difference in other.differences] == [0]
    assert (
        "wrong, 2 sequences: parts after 0 tokens, top-2 gap"
        in as_text([own, other]).splitlines()[-1]
    )


def test_a_table_compares_with_the_first_row():
    speeds = [
        Speed("a", 1, 10.0, ()),
        Speed("b", 1, 20.0, ()),
        Speed("a", 4, 40.0, ()),
        Speed("b", 4, 10.0, (Difference(3, 1, None, None),)),
    ]
    _, first, second, note = as_text(speeds).splitlines()
    assert first.split() == ["a", "10.0", "1.00x", "40.0", "1.00x"]
    assert second.split() == ["b", "20.0", "2.00x", "10.0", "0.25x"]
    assert note == "b, 4 sequences: parts after 3 tokens, where one of the two ends"


def test_the_command_measures_and_says_whether_all_agree(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path))
    assert main(["--model", str(folder), "--sequences", "1,2", "--max-tokens", "3"]) == 0
    printed = capsys.readouterr().out
    assert "mlx-lm batch_generate" in printed
    assert printed.endswith("all replies are those of the first row\n")
