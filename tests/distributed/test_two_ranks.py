"""Two or three processes over the loopback ring write what one writes, token for token.

Sums are split among the ranks, so a greedy reply may part from the other at a near-tie.
"""

import json

import pytest

from mlxspec import api
from mlxspec.measure.lossless import first_difference
from tests.support.ranks import PROMPT, run_script
from tests.support.shared_folders import FOLDERS, save_shared
from tests.support.shared_replies import TEXT, default_replies, replies

HOW = {  # what differs from one full cache and a pool
    "own": {"drafters": ("none", "pool", "model")},
    "own-qwen2": {"drafters": ("model",), "max_kv_size": 12, "keep": 2},
    "pipeline": {"port": "mlx-lm"},
}
SCRIPT = """
import json, sys
from mlxspec import api
from tests.support.shared_replies import default_replies, replies
plan, hosts = json.loads(sys.argv[1]), sys.argv[2]
found = {name: replies(hosts=hosts, **one) for name, one in plan.items()}
if hosts == "2":
    with api.load(drafter="pool", hosts=hosts) as engine:
        found["default"] = default_replies(engine)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """The arguments of `replies` by the name of a folder."""
    root = tmp_path_factory.mktemp("shared")
    usual = {"small": str(save_shared(root / "small", "own", seed=11)), "drafters": ("pool",)}
    return {
        name: {"folder": str(save_shared(root / name, name)), **usual, **HOW.get(name, {})}
        for name in FOLDERS
    }


@pytest.fixture(scope="module")
def shared(plan):
    return run_script(SCRIPT, json.dumps(plan), "2")


@pytest.mark.parametrize("name", FOLDERS)
def test_two_ranks_write_what_one_process_writes(name, plan, shared):
    check_same(plan[name], shared[name])
    words = "pipeline of 2 ranks" if name == "pipeline" else "tensor parallel on 2 ranks"
    assert words in shared[name]["words"]


def test_three_ranks_write_what_one_process_writes(plan):
    """Each has a group of heads of the one model, and a layer of the other."""
    few = {name: plan[name] | {"drafters": ("pool",)} for name in ("own", "pipeline")}
    shared = run_script(SCRIPT, json.dumps(few), "3")

    for name, one in few.items():
        check_same(one, shared[name])
    assert "tensor parallel on 3 ranks" in shared["own"]["words"]
    assert "pipeline of 3 ranks" in shared["pipeline"]["words"]
    assert len(shared["own"]["sizes"]) == 3


def check_same(one, shared):
    """Fail if ranks write other tokens than one process, but for near-ties."""
    alone, together = replies(**one)["replies"], shared["replies"]

    assert alone.keys() == together.keys()
    assert len(set(map(str, alone.values()))) > 2  # else the texts could not tell
    differing = [key for key in alone if alone[key] != together[key]]
    for key in differing:
        assert "greedy" in key, f"{key}: {together[key]} is not {alone[key]}"
        with api.load(one["folder"], drafter="none", port=one.get("port", "auto")) as engine:
            check_near_tie(engine, PROMPT, together[key], alone[key])


def check_near_tie(engine, prompt, written, expected):
    found = first_difference(engine, prompt, written, expected, is_foreign=True)
    assert found is None or found.is_near_tie


def test_two_ranks_write_what_one_writes_with_the_default_model(shared):
    together = shared["default"]
    with api.load(drafter="none") as engine:
        alone = default_replies(engine)
        assert together.keys() == alone.keys() == {"greedy", "sampled"}
        assert together["sampled"] == alone["sampled"] != alone["greedy"]
        check_near_tie(engine, TEXT, together["greedy"], alone["greedy"])


def test_each_rank_has_a_part_of_the_weights(plan, shared):
    with api.load(plan["own"]["folder"], drafter="none") as engine:
        whole = engine.target.model.nbytes

    assert all(size < 0.75 * whole for size in shared["own"]["sizes"])
    assert sum(shared["own"]["sizes"]) >= whole
