"""An examination refuses drafts of a model whose adapter is broken, and admits a sound one."""

from dataclasses import replace
from importlib import import_module

import mlx.core as mx
import pytest

from mlxspec.adapted import admission
from mlxspec.adapted.admission import examine
from mlxspec.adapted.current import Current
from mlxspec.adapted.leaves import RowsLeaf
from mlxspec.adapted.model import AdaptedModel
from mlxspec.adapted.override import override
from mlxspec.kv.states import States

WINDOWED = {
    "model_type": "gemma3_text",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-6,
    "vocab_size": 97,
    "sliding_window": 6,
    "sliding_window_pattern": 2,
}
HYBRID = {
    "model_type": "lfm2",
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "norm_eps": 1e-5,
    "conv_bias": False,
    "conv_L_cache": 3,
    "block_dim": 32,
    "block_ff_dim": 64,
    "block_multiple_of": 8,
    "block_ffn_dim_multiplier": 1.0,
    "block_auto_adjust_ff_dim": False,
    "full_attn_idxs": [1],
    "rope_theta": 10000.0,
}


def adapted(settings) -> AdaptedModel:
    module = import_module(f"mlx_lm.models.{settings['model_type']}")
    mx.random.seed(7)
    model = module.Model(module.ModelArgs.from_dict(settings))
    model.eval()
    mx.eval(model.parameters())
    return AdaptedModel.of(model)


@pytest.mark.parametrize("settings", [WINDOWED, HYBRID], ids=["windows", "hybrid"])
def test_a_sound_model_is_admitted_with_trees(settings):
    verdict = examine(adapted(settings))
    assert (verdict.support, verdict.reason) == ("tree", "")
    assert verdict.error < 1e-5
    assert verdict.batches


def test_a_model_whose_batches_differ_runs_sequences_one_by_one(monkeypatch):
    model = adapted(HYBRID)
    run = Current.run

    def wrong(self, forward):
        positions = forward.positions
        if not isinstance(positions, int) and positions.ndim == 2:
            positions = mx.broadcast_to(positions[:1], positions.shape)  # as if all began together
        return run(self, replace(forward, positions=positions))

    monkeypatch.setattr(Current, "run", wrong)
    verdict = examine(model)
    assert (verdict.support, verdict.batches) == ("tree", False)


def depth_off(monkeypatch, model):
    run = Current.run

    def wrong(self, forward):
        positions = forward.positions
        if not isinstance(positions, int):
            positions = positions + (mx.arange(positions.shape[-1]) == 2)
        return run(self, replace(forward, positions=positions))

    monkeypatch.setattr(Current, "run", wrong)


def mask_off_by_one(monkeypatch, model):
    make_mask = RowsLeaf.make_mask

    def wrong(self, *args, **kwargs):
        mask = make_mask(self, *args, **kwargs)
        return mx.roll(mask, 1, axis=-1) if isinstance(mask, mx.array) else mask

    monkeypatch.setattr(RowsLeaf, "make_mask", wrong)


def window_ignored(monkeypatch, model):
    make_mask = RowsLeaf.make_mask

    def wrong(self, *args, **kwargs):
        self.window = None
        return make_mask(self, args[0])

    monkeypatch.setattr(RowsLeaf, "make_mask", wrong)


def state_not_restored(monkeypatch, model):
    monkeypatch.setattr(States, "restore", lambda self, snapshot: self.forget())


def state_of_the_last_row(monkeypatch, model):
    commit = States.commit
    monkeypatch.setattr(
        States,
        "commit",
        lambda self, paths: commit(self, [[self.num_staged - 1] if self.levels else paths[0]]),
    )


def rope_base_changed(monkeypatch, model):
    rope = model.source.layers[1].self_attn.rope
    base = rope.base

    def wrong(call, x, offset):
        is_tree = model._hooked._current.positions is not None
        rope.base = base * 3 if is_tree else base
        return call(x, offset=offset)

    override(rope, wrong)


def mask_for_trees_by_level(monkeypatch, model):
    make_mask = RowsLeaf.make_mask

    def wrong(self, N, **named):
        mask, positions = make_mask(self, N, **named), self._current.positions
        if positions is None or not isinstance(mask, mx.array) or mask.ndim != 2:
            return mask
        by_level = mx.argsort(positions * N + mx.arange(N))
        staged = mask[:, -N:][by_level][:, by_level]
        return mx.concatenate([mask[:, :-N], staged], axis=1)

    monkeypatch.setattr(RowsLeaf, "make_mask", wrong)


BREAKS = [
    (WINDOWED, depth_off),
    (WINDOWED, mask_off_by_one),
    (WINDOWED, window_ignored),
    (WINDOWED, mask_for_trees_by_level),
    (HYBRID, state_not_restored),
    (HYBRID, state_of_the_last_row),
    (HYBRID, rope_base_changed),
]


@pytest.mark.parametrize(
    ("settings", "broken"), BREAKS, ids=[broken.__name__ for _, broken in BREAKS]
)
def test_a_broken_adapter_is_not_admitted_with_trees(settings, broken, monkeypatch):
    model = adapted(settings)
    broken(monkeypatch, model)
    verdict = examine(model)
    assert verdict.support != "tree"
    assert "draft trees: the draft" in verdict.reason


def test_what_fails_with_trees_alone_gets_chains(monkeypatch):
    model = adapted(HYBRID)
    run = Current.run

    def wrong(self, forward):
        positions = forward.positions
        if not isinstance(positions, int) and positions[-1].item() - positions[0].item() == 3:
            positions = positions + 1
        return run(self, replace(forward, positions=positions))

    monkeypatch.setattr(Current, "run", wrong)
    assert examine(model).support == "chain"


def test_what_fails_with_chains_too_decodes_plainly(monkeypatch):
    model = adapted(HYBRID)
    run = Current.run

    def wrong(self, forward):
        positions = forward.positions
        if not isinstance(positions, int) and positions.size > 1:
            positions = positions * 2
        return run(self, replace(forward, positions=positions))

    monkeypatch.setattr(Current, "run", wrong)
    assert examine(model).support == "none"


def test_what_fails_with_single_tokens_is_refused(monkeypatch):
    model = adapted(WINDOWED)
    monkeypatch.setattr(RowsLeaf, "make_mask", lambda self, N, **_: mx.ones((N, N), mx.bool_))
    verdict = examine(model)
    assert verdict.support is None
    assert "single tokens" in verdict.reason


def test_the_text_is_longer_than_every_window_that_can_be_read_in_time():
    model = adapted(WINDOWED | {"sliding_window": 60})
    exam = admission._Exam(model, lambda done, total: None, lambda error: error)
    assert len(exam._prompt) > 60


def test_a_long_prompt_is_read_a_few_times_only():
    model = adapted(WINDOWED | {"sliding_window": 60})
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
    fault_of = admission._Exam.fault_of
    rows = {"tree": 7, "chain": 7, "none": 1}

    def failing(self, parents):
        found = fault_of(self, parents)
        is_tree = list(parents) == list(admission._TREE)
        fails = (lowest != "tree" and is_tree) or len(parents) > rows[lowest]
        return ("a fault", 1.0) if fails else found

    monkeypatch.setattr(admission._Exam, "fault_of", failing)
    verdict = examine(adapted(HYBRID), lambda done, total: seen.append((done, total)))
    assert verdict.support == lowest
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (num_texts, num_texts)
    assert all(done <= total for done, total in seen)
