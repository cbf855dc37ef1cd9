"""An examination refuses drafts of a broken adapter, and caches by name; it admits a sound one.

A model that misreads over a ring or over packed rows is mended or refused that kind of cache.
"""

from dataclasses import replace

import mlx.core as mx
import pytest

from mlxspec.adapted.current import Current
from mlxspec.adapted.leaves import RowsLeaf
from mlxspec.adapted.model import AdaptedModel
from mlxspec.adapted.override import override
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafts.tree import DraftTree
from mlxspec.errors import UnsupportedOperationError
from mlxspec.kv.cache import Cache
from mlxspec.kv.states import States
from mlxspec.loading import examination, mlx_lm
from mlxspec.loading.examination import examine
from tests.support.tiny import ToyTokenizer
from tests.support.tiny_adapted import adapted
from tests.support.zoo import PARENTS, PATH, TOKENS, build, error, text_of, tree_of

WINDOWS, STATES = "gemma3_text", "lfm2"


def change_positions(monkeypatch, change):
    """Let forwards stand elsewhere; `change` gets a forward and its positions if these are many."""
    run = Current.run

    def wrong(self, forward):
        if not isinstance(forward.positions, int):
            forward = replace(forward, positions=change(forward, forward.positions))
        return run(self, forward)

    monkeypatch.setattr(Current, "run", wrong)


@pytest.mark.parametrize("kind", [WINDOWS, STATES])
def test_a_sound_model_is_admitted_with_trees(kind):
    verdict = examine(adapted(kind))
    assert (verdict.support, verdict.reason) == ("tree", "")
    assert verdict.error < 1e-5
    assert verdict.batches


def begun_together(forward, positions):
    return mx.broadcast_to(positions[:1], positions.shape) if positions.ndim == 2 else positions


def test_a_model_whose_batches_differ_runs_sequences_one_by_one(monkeypatch):
    change_positions(monkeypatch, begun_together)
    verdict = examine(adapted(STATES))
    assert (verdict.support, verdict.batches) == ("tree", False)


def depth_off(monkeypatch):
    change_positions(monkeypatch, lambda _, at: at + (mx.arange(at.shape[-1]) == 2))


def window_ignored(monkeypatch):
    make_mask = RowsLeaf.make_mask

    def wrong(self, *args, **kwargs):
        self.window = None
        return make_mask(self, args[0])

    monkeypatch.setattr(RowsLeaf, "make_mask", wrong)


def state_not_restored(monkeypatch):
    monkeypatch.setattr(States, "restore", lambda self, snapshot: self.forget())


def state_of_the_last_row(monkeypatch):
    commit = States.commit
    monkeypatch.setattr(
        States,
        "commit",
        lambda self, paths: commit(self, [[self.num_staged - 1] if self.levels else paths[0]]),
    )


def mask_for_trees_by_level(monkeypatch):
    make_mask = RowsLeaf.make_mask

    def wrong(self, N, **named):
        mask, positions = make_mask(self, N, **named), self._current.positions
        if positions is None or not isinstance(mask, mx.array) or mask.ndim != 2:
            return mask
        by_level = mx.argsort(positions * N + mx.arange(N))
        staged = mask[:, -N:][by_level][:, by_level]
        return mx.concatenate([mask[:, :-N], staged], axis=1)

    monkeypatch.setattr(RowsLeaf, "make_mask", wrong)


@pytest.mark.parametrize(
    ("kind", "broken"),
    [
        (WINDOWS, depth_off),
        (WINDOWS, window_ignored),
        (WINDOWS, mask_for_trees_by_level),
        (STATES, state_not_restored),
        (STATES, state_of_the_last_row),
    ],
)
def test_a_broken_adapter_is_not_admitted_with_trees(kind, broken, monkeypatch):
    model = adapted(kind)
    broken(monkeypatch)
    verdict = examine(model)
    assert verdict.support != "tree"
    assert "draft trees: the draft" in verdict.reason


@pytest.mark.parametrize(
    ("change", "support"),
    [
        (lambda _, at: at + 1 if at[-1].item() - at[0].item() == 3 else at, "chain"),
        (lambda _, at: at * 2 if at.size > 1 else at, "none"),
    ],
    ids=["trees alone", "chains too"],
)
def test_what_fails_with_trees_gets_as_much_as_is_exact(change, support, monkeypatch):
    change_positions(monkeypatch, change)
    assert examine(adapted(STATES)).support == support


def test_what_fails_with_single_tokens_is_refused(monkeypatch):
    model = adapted(WINDOWS)
    monkeypatch.setattr(RowsLeaf, "make_mask", lambda self, N, **_: mx.ones((N, N), mx.bool_))
    verdict = examine(model)
    assert verdict.support is None
    assert "single tokens" in verdict.reason


def test_a_long_prompt_is_read_a_few_times_only_and_is_longer_than_the_window():
    model = adapted(WINDOWS, sliding_window=60)
    lengths = []

    def count(call, tokens, *rest, **named):
        lengths.append(tokens.shape[-1])
        return call(tokens, *rest, **named)

    override(model.source, count)
    assert examine(model).support == "tree"
    # mlx-lm: once, and once more to see what rounding does; ours: alone, and two in a batch.
    assert sum(length > 60 for length in lengths) == 5


@pytest.mark.parametrize(
    ("lowest", "num_texts"),
    [
        ("tree", 2 * 7),
        ("chain", 14 + 2 * 7 - 2),  # the first two tokens are a path of the tree, too
        ("none", 26 + 1),  # the root is known, twice the root is not
    ],
)
def test_progress_counts_texts_up_to_the_last_one(lowest, num_texts, monkeypatch):
    seen = []
    fault_of = examination._Exam.fault_of
    rows = {"tree": 7, "chain": 7, "none": 1}

    def failing(self, parents):
        found = fault_of(self, parents)
        is_tree = list(parents) == list(examination._TREE)
        fails = (lowest != "tree" and is_tree) or len(parents) > rows[lowest]
        return ("a fault", 1.0) if fails else found

    monkeypatch.setattr(examination._Exam, "fault_of", failing)
    verdict = examine(adapted(STATES), lambda done, total: seen.append((done, total)))
    assert verdict.support == lowest
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (num_texts, num_texts)
    assert all(done <= total for done, total in seen)


TOLERANCE = 1e-5
RING = {"max_size": 14, "keep": 4}


def over_a_ring(model):
    return Decoder(model, Cache.for_model(model.config, **RING))


# afm7 counts the rows it gets to know where they stand; a window of plamo3 sees a row that its own
# cache does not hold.
@pytest.mark.parametrize("name", ["afm7", "plamo3"])
def test_over_a_ring_tokens_rounds_and_drafts_are_the_same(name):
    model = AdaptedModel(build(name))
    by_tokens, by_rounds = over_a_ring(model), over_a_ring(model)
    text = text_of(24)
    by_rounds.observe(text[:6])
    for token in text[6:]:
        by_rounds.forward_tree(DraftTree.from_lists([token], [-1]))
        by_rounds.commit([0])
    for token in text:
        by_tokens.observe([token])
    assert error(by_tokens.next_logits(), by_rounds.next_logits()) < TOLERANCE
    drafted = by_tokens.tree_logits(tree_of(PARENTS))
    for node in PATH:
        by_tokens.observe([TOKENS[node]])
        assert error(drafted[node], by_tokens.next_logits()) < TOLERANCE


def test_a_text_in_one_piece_is_read_over_a_ring_as_token_by_token():
    model = AdaptedModel(build("afm7"))
    at_once, by_tokens = over_a_ring(model), over_a_ring(model)
    at_once.observe(text_of(24))
    for token in text_of(24):
        by_tokens.observe([token])
    assert error(at_once.next_logits(), by_tokens.next_logits()) < TOLERANCE


def test_a_model_whose_masks_count_positions_is_refused_a_ring_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path))
    source = build("llama4")
    for _ in range(2):  # examined, then known
        model = mlx_lm.admitted(source, ToyTokenizer(96))
        assert set(model.refused_caches) == {"rotating"}
        with pytest.raises(UnsupportedOperationError, match="leave max_kv_size unset"):
            over_a_ring(model)
        Decoder(model)


KINDS = {
    "rotating": lambda cache: cache.max_size is not None,
    "quantised": lambda cache: cache.quantization is not None,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_over_one_kind_of_cache_refuses_that_kind_alone(kind, monkeypatch):
    def change(forward, positions):
        is_kind = isinstance(forward.cache, Cache) and KINDS[kind](forward.cache)
        return positions * 2 if is_kind else positions

    change_positions(monkeypatch, change)
    verdict = examine(adapted(WINDOWS, head_dim=32))
    assert verdict.support == "tree"
    assert set(verdict.refused_caches) == {kind}
    assert f"no {kind} cache" in verdict.words


def test_a_sound_model_has_every_kind_of_cache():
    assert examine(adapted(WINDOWS, head_dim=32)).refused_caches == {}
