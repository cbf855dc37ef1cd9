"""A round of a batch is one forward and one wait, for as many sequences as there are."""

import mlx.core as mx
import pytest

from mlxspec.batch.decoder import BatchDecoder
from mlxspec.params import GenerationParams
from tests.support.batches import DRAFTERS, MODEL, PROMPTS, batch
from tests.support.tiny import make_engine


@pytest.fixture
def widths(monkeypatch):
    """How wide the trees of every forward of a batch are."""
    widths, forward = [], BatchDecoder.forward_trees

    def noted(self, trees):
        widths.append([tree.n_nodes for tree in trees])
        return forward(self, trees)

    monkeypatch.setattr(BatchDecoder, "forward_trees", noted)
    return widths


def test_a_round_is_one_forward_for_all_and_the_batch_shrinks_once_no_prompt_waits(widths):
    lengths = [2, 5, 9, 3, 4, 4, 1]
    batch("none", params=[GenerationParams(max_tokens=length) for length in lengths])
    assert widths == [[1] * 4] * 6 + [[1] * 2]  # and the last two rounds alone


@pytest.mark.parametrize(("rows", "nodes"), [(1, 0), (4, 0), (7, 0), (8, 1), (15, 2), (100, 5)])
def test_drafts_share_the_rows_of_a_round(rows, nodes, widths):
    params = GenerationParams(max_tokens=13, num_draft_tokens=5)
    batch("always right", PROMPTS[:4], params, rows_per_round=rows)
    assert max(max(row) for row in widths) == 1 + nodes


@pytest.mark.parametrize("drafter", ["none", "pool", "random trees"])
def test_a_round_waits_for_the_device_once(drafter, widths, monkeypatch):
    engine = make_engine(MODEL, DRAFTERS[drafter]())
    params = GenerationParams(max_tokens=12, num_draft_tokens=3)
    replies = engine.generate_batch(PROMPTS[:4], params, batch_size=4)
    waits = []
    monkeypatch.setattr("mlxspec.batch.decoder.mx.eval", lambda *arrays: waits.append(1))
    monkeypatch.setattr("mlxspec.device.backend.sync", mx.eval)
    real = mx.async_eval

    def evaluated(*arrays):
        waits.append(1)
        real(*arrays)
        mx.synchronize()

    monkeypatch.setattr(mx, "eval", evaluated)
    next(replies)
    joins = 4
    reads = sum(len(prompt) > 1 for prompt in PROMPTS[:4]) * 2  # chunks, each in two steps
    leaves = len({len(row) for row in widths}) - 1
    assert len(waits) - joins - reads - leaves == len(widths)
