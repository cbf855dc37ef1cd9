"""How far logits drift by the rows beside theirs, and what of it is a rounding."""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.kv.cache import Cache
from mlxspec.measure.drift import WIDTHS, Text, measure_drift, near_tie_after, rounding
from mlxspec.trace.difference import near_tie_of
from tests.support.halves import half_model
from tests.support.tiny import make_cache, tiny_model
from tests.support.truth import Target

MODEL = tiny_model()
PROMPT = [1, 2, 3, 1, 2]
KINDS = ("full", "rotating", "int8")


def decoder(kind="full"):
    return Decoder(MODEL, make_cache(MODEL, kind))


class Rounding:
    """Makes a target add something to the logits of every row that has others beside it."""

    def __init__(self, monkeypatch, added):
        logits = Decoder.logits

        def rounded(self, hidden):
            found = logits(self, hidden)
            is_alone = hidden.ndim == 1 or hidden.shape[0] == 1
            return found if is_alone else found + mx.array(added, mx.float32)

        monkeypatch.setattr(Decoder, "logits", rounded)


def texts():
    reply = np.random.default_rng(1).integers(0, 24, 40).tolist()
    return [Text.of(PROMPT, reply, room=512)]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_one_target_hardly_drift(kind):
    drift = measure_drift(decoder(kind), texts())
    assert [width.width for width in drift.widths] == list(WIDTHS)
    assert drift.widths[0].largest == 0
    # An int8 row whose rounding falls on an edge of the packing moves by a step.
    assert drift.largest < (0.1 if kind == "int8" else 1e-3)
    assert drift.near_tie == 4 * drift.rounding


def test_drift_flips_and_gap_are_those_of_the_logits(monkeypatch):
    added = np.zeros(24)
    added[7] = -0.25
    added[9] = 0.5
    text = texts()[0]
    target = Target(MODEL)
    tokens = (*text.prompt[:-1], *text.rows)
    rows = np.array([target.logits(tokens[: len(PROMPT) + i]) for i in range(len(text.rows))])
    flips = (rows.argmax(axis=1) != (rows + added).argmax(axis=1)).sum()
    top = np.sort(rows, axis=1)
    Rounding(monkeypatch, added)
    drift = measure_drift(decoder(), [text])
    assert 0 < flips < len(rows)
    assert [width.num_flips for width in drift.widths if width.width in (1, 8)] == [0, flips]
    assert drift.widths[0].largest == 0
    assert drift.largest == pytest.approx(0.5, abs=1e-4)
    assert drift.smallest_gap == pytest.approx((top[:, -1] - top[:, -2]).min(), abs=1e-4)


def test_what_a_rounding_leaves_in_the_cache_is_part_of_the_drift(monkeypatch):
    """A wrong row that is committed moves those that follow, also where these are right."""
    commit = Decoder.commit

    def wrong(self, path):
        commit(self, path)
        if len(path) > 1:
            values = self.cache.arrays[-1]
            values[...] = values * 1.5

    monkeypatch.setattr(Decoder, "commit", wrong)
    drift = measure_drift(decoder(), texts())
    assert drift.widths[0].largest == 0
    assert drift.widths[1].largest > 0.01


def test_rows_are_the_reply_repeated_or_the_last_ones_and_fit_the_context():
    text = Text.of([4, 5], [6, 7], room=None)
    assert (text.prompt, text.rows) == ((4, 5), (5, 6, 7) * 10 + (5, 6))
    text = Text.of([4, 5], [6, 7], room=12)
    assert len(text.prompt) - 1 + len(text.rows) == 12
    text = Text.ending(range(100), room=None)
    assert (text.prompt, text.rows) == (tuple(range(69)), tuple(range(68, 100)))
    text = Text.ending([4, 5], room=9)
    assert (text.prompt, text.rows) == ((4,), (4, 5) * 4 + (4,))


# ---- what may excuse a difference ----------------------------------------------------------


@pytest.mark.parametrize("kind", ["full", "int8"])
def test_where_every_row_is_computed_alike_nothing_is_excused(kind, monkeypatch):
    monkeypatch.setattr(Decoder, "logits", lambda self, hidden: mx.zeros((*hidden.shape[:-1], 24)))
    assert near_tie_after(decoder(kind), PROMPT) == 0.0


@pytest.mark.parametrize("tokens", [PROMPT[:1], PROMPT, PROMPT * 20])
def test_what_a_rounding_moves_is_measured_at_a_place(tokens, monkeypatch):
    added = np.zeros(24)
    added[7] = 0.25
    Rounding(monkeypatch, added)
    target = decoder()
    target.observe([3, 4])
    assert near_tie_after(target, tokens) == pytest.approx(1.0, abs=1e-3)
    assert target.history == (3, 4)


def lose_the_last_row(monkeypatch):
    commit = Decoder.commit
    monkeypatch.setattr(
        Decoder, "commit", lambda self, path: commit(self, path[: max(1, len(path) - 1)])
    )


def mix_up_siblings(monkeypatch):
    monkeypatch.setattr("mlxspec.decoder.forwards.tree_masks", lambda *asked: {None: None})


def damage_what_is_kept(monkeypatch):
    """Also where a prompt is read: then logits move further than any rounding moves them."""
    commit = Cache.commit

    def wrong(self, rows):
        commit(self, rows)
        if len(rows) > 1:
            for array in self.arrays:
                array[...] = -array

    monkeypatch.setattr(Cache, "commit", wrong)


@pytest.mark.parametrize(
    ("fault", "dtype"),
    [
        (lose_the_last_row, mx.float32),
        (mix_up_siblings, mx.float16),
        (damage_what_is_kept, mx.float32),
        (damage_what_is_kept, mx.float16),
    ],
)
def test_a_mistake_does_not_excuse_itself(fault, dtype, monkeypatch):
    model = half_model(dtype)
    text = texts()[0]
    honest = rounding(Decoder(model), text)
    fault(monkeypatch)
    assert rounding(Decoder(model), text) in (honest, 0.0)
    drift = measure_drift(Decoder(model), [text])
    assert drift.near_tie in (near_tie_of(honest), 0.0)
    assert drift.largest > 0.5  # it can be seen, all the same
