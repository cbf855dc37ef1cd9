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

PORTS = {"pipeline": "mlx-lm"}
CACHES = {"own-qwen2": ("rotating",)}
FEW = ("none", "pool")
DRAFTERS = {"own": ("none", "suffix", "table", "pool", "model"), "own-qwen2": ("suffix", "model")}
SCRIPT = """
import json, sys
from tests.support.shared_replies import replies
plan = json.loads(sys.argv[1])
found = {name: replies(hosts=sys.argv[2], **one) for name, one in plan.items()}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """The arguments of `replies` by the name of a folder."""
    root = tmp_path_factory.mktemp("shared")
    small = str(save_shared(root / "small", "own", seed=11))
    return {
        name: {
            "folder": str(save_shared(root / name, name)),
            "small": small,
            "port": PORTS.get(name, "auto"),
            "caches": CACHES.get(name, ("full",)),
            "drafters": DRAFTERS.get(name, FEW),
        }
        for name in FOLDERS
    }


@pytest.fixture(scope="module")
def shared(plan):
    return run_script(SCRIPT, json.dumps(plan), "2")


@pytest.mark.parametrize("name", FOLDERS)
def test_two_ranks_write_what_one_process_writes(name, plan, shared):
    check_same(plan[name], shared[name])


def test_three_ranks_write_what_one_process_writes(plan):
    """Each has a group of heads of the one model, and a layer of the other."""
    few = {name: plan[name] | {"drafters": FEW} for name in ("own", "pipeline")}
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
        assert is_rounding(one, together[key], alone[key]), key


def is_rounding(one, written, expected):
    with api.load(one["folder"], drafter="none", port=one["port"]) as engine:
        found = first_difference(engine, PROMPT, written, expected, is_foreign=True)
    return found is not None and found.is_near_tie


DEFAULT = """
import json
from tests.support.shared_replies import default_replies
print(json.dumps(default_replies("pool", hosts="2")))
"""


def test_two_ranks_write_what_one_writes_with_the_default_model():
    together = run_script(DEFAULT)
    alone = default_replies("none")

    assert together.keys() == alone.keys() == {"greedy", "sampled"}
    assert together["sampled"] == alone["sampled"] != alone["greedy"]
    with api.load(drafter="none") as engine:
        written, expected = together["greedy"], alone["greedy"]
        found = first_difference(engine, TEXT, written, expected, is_foreign=True)
    assert found is None or found.is_near_tie


def test_the_ranks_share_by_what_the_model_can_do(shared):
    assert "tensor parallel on 2 ranks" in shared["own"]["words"]
    assert "tensor parallel on 2 ranks" in shared["tensor"]["words"]
    assert "pipeline of 2 ranks" in shared["pipeline"]["words"]


def test_each_rank_has_a_part_of_the_weights(plan, shared):
    with api.load(plan["own"]["folder"], drafter="none") as engine:
        whole = engine.target.model.nbytes

    assert all(size < 0.75 * whole for size in shared["own"]["sizes"])
    assert sum(shared["own"]["sizes"]) >= whole
