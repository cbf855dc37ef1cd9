"""What rank 0 sends, what the ranks tell each other, and a rank that is lost."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Barrier
from types import SimpleNamespace

import mlx.core as mx
import pytest

from mlxspec.distributed import exchange
from mlxspec.distributed.exchange import check_same, gathered, told, weights_fingerprint
from mlxspec.distributed.orders import Orders
from mlxspec.drafts.tree import DraftTree
from mlxspec.errors import ModelNotFoundError, RankLostError
from tests.support.batches import MODEL
from tests.support.followed import Followed
from tests.support.ranks import environment


@pytest.fixture
def on_all(monkeypatch):
    """Runs a function on two ranks, which are threads here; returns what each of them gets."""
    ranks, given = Barrier(2), {}

    def all_sum(array, group):
        given[group.rank()] = array
        ranks.wait(10)
        total = given[0] + given[1]
        ranks.wait(10)
        return total

    def on_all(function, *values):
        groups = [SimpleNamespace(rank=lambda rank=rank: rank, size=lambda: 2) for rank in (0, 1)]
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(function, values, groups))

    monkeypatch.setattr(mx.distributed, "all_sum", all_sum)
    monkeypatch.setattr(exchange, "device_turn", nullcontext)  # each rank has a device of its own
    return on_all


@pytest.mark.parametrize("size", [1, 2000, 2038, 2039, 5000])
def test_what_rank_0_says_arrives_whole(size, on_all):
    """At every size around that of the first sum, and in two of them."""
    assert on_all(told, "x" * size, "ignored") == ["x" * size] * 2


def test_the_facts_of_all_ranks_come_in_their_sequence(on_all):
    assert on_all(gathered, {"rank": 0}, {"rank": 1}) == [[{"rank": 0}, {"rank": 1}]] * 2


def test_a_round_is_one_message():
    followed = Followed(MODEL)
    target = followed.engine.target
    target.observe([1, 2])
    for root in (3, 4):
        target.forward_tree(DraftTree(mx.array([root, 5]), mx.array([-1, 0])))
        target.commit([0])

    assert followed.messages == [["open", "observe"], ["forward_tree"], ["commit", "forward_tree"]]


def test_a_refused_call_orders_nothing():
    followed = Followed(MODEL)
    target = followed.engine.target
    target.observe([1, 2])
    for refused in (
        lambda: target.commit([0]),
        lambda: target.commit_chain([1]),
        lambda: target.rollback_to(9),
        lambda: target.observe([-1]),
    ):
        with pytest.raises(ValueError, match=r"staged|chain|history|vocabulary"):
            refused()
    followed.flush()
    assert followed.messages[1:] == [["close"]]


def test_an_error_within_an_order_loses_the_target_for_good():
    sent = []
    orders = Orders(sent.append)

    def fail():
        with orders.together("find"):
            raise MemoryError("no room")

    with pytest.raises(RankLostError, match=r"\(rank 0: MemoryError: no room\); the chat is kept"):
        fail()
    with pytest.raises(RankLostError, match="no room"), orders.together("find"):
        pass
    assert sent == [[["find"]]]  # and nothing after the loss


LOST = """
import signal, sys, time
from types import SimpleNamespace
from mlxspec.distributed import orders

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
orders._ORDERLY_S = float(sys.argv[1])
ended = []
rank_1 = SimpleNamespace(ended=lambda: "".join(ended), end=lambda: None)
told = orders.Orders(len, rank_1)
try:
    if sys.argv[2] == "idle":
        ended.append("rank 1 was killed")
        time.sleep(60)
    with told.together("find"):
        ended.append("rank 1 was killed")
        time.sleep(60)  # as a sum that waits for it: Ctrl+C does not end it
except KeyboardInterrupt:
    print("gave the terminal back")
"""


@pytest.mark.parametrize(("seconds", "state"), [(1, "computing"), (60, "idle")])
def test_a_rank_that_ends_ends_this_process(seconds, state):
    done = subprocess.run(
        [sys.executable, "-c", LOST, str(seconds), state],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 1
    assert "(rank 1 was killed); the chat is kept" in done.stderr
    assert ("gave the terminal back" in done.stdout) == (state == "idle")


INTERRUPTED = """
import signal
from mlxspec.distributed.orders import Orders

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
done = []
try:
    with Orders(len).together("find"):
        signal.raise_signal(signal.SIGINT)
        done.append("in step")
except KeyboardInterrupt:
    done.append("interrupted")
print(done, flush=True)
with Orders(len).together("find"):
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
print("not reached")
"""


def test_ctrl_c_waits_until_the_ranks_are_in_step_and_a_second_one_does_not():
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], env=environment(), capture_output=True, text=True
    )
    assert done.stdout.strip() == "['in step', 'interrupted']"
    assert done.returncode == 130


def test_other_facts_are_refused_by_name():
    own = {"mlx": "1.0", "weights": "a"}
    with pytest.raises(RankLostError, match=r'mlx is "0\.9" on rank 1 and "1\.0" on rank 0'):
        check_same([own, {**own, "mlx": "0.9"}])
    with pytest.raises(ModelNotFoundError, match="rank 2 does not find the model: no such folder"):
        check_same([own, own, {"missing": "no such folder"}])
    check_same([own, dict(own)])


def test_a_fingerprint_tells_files_apart(tmp_path):
    def fingerprint(weights, config="{}"):
        (tmp_path / "config.json").write_text(config)
        (tmp_path / "model.safetensors").write_bytes(weights)
        return weights_fingerprint(tmp_path)

    whole = bytes(4 << 20)
    other = whole[: 3 << 20] + b"\1" + whole[(3 << 20) + 1 :]  # at one of the 64 places
    found = [fingerprint(whole), fingerprint(other), fingerprint(whole[:-1])]
    found.append(fingerprint(whole, json.dumps({"layers": 1})))
    assert len(set(found)) == 4
    assert fingerprint(whole) == found[0]
