"""What each rank keeps of a model: together all of it, and nothing twice."""

from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.distributed.decoder import ShardedModel
from mlxspec.distributed.orders import Orders
from mlxspec.distributed.sharding import sharing
from mlxspec.errors import UnsupportedModelError, UnsupportedOperationError
from mlxspec.models.sharding import share
from tests.support.model_folders import tiny_config
from tests.support.shared_folders import COMMON, FOLDERS, build_module
from tests.support.tiny import tiny_model

SIZES = {"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 8}


def group_of(rank, size):
    return SimpleNamespace(rank=lambda: rank, size=lambda: size)


def cut(rank, size, family="llama", **config):
    model = tiny_model(family, **(SIZES | config))
    words = sharing(group_of(rank, size)).cut(model)
    return model, words


@pytest.mark.parametrize("size", [2, 3])
def test_the_parts_of_all_ranks_are_the_whole(size):
    whole = tiny_model(**SIZES)
    parts = [cut(rank, size)[0] for rank in range(size)]

    for at, layer in enumerate(whole.layers):
        own = [part.layers[at] for part in parts]
        for block, name in (
            ("self_attn", "q_proj"),
            ("self_attn", "k_proj"),
            ("self_attn", "v_proj"),
            ("mlp", "gate_proj"),
            ("mlp", "up_proj"),
        ):
            rows = [np.array(one[block][name].weight) for one in own]
            assert np.array_equal(np.concatenate(rows), np.array(layer[block][name].weight))
        for block, name in (("self_attn", "o_proj"), ("mlp", "down_proj")):
            columns = [np.array(one[block][name].part.weight) for one in own]
            assert np.array_equal(np.concatenate(columns, 1), np.array(layer[block][name].weight))


def test_a_rank_has_whole_groups_of_heads():
    model, words = cut(0, 2)

    attention = model.layers[0].self_attn
    assert (attention.n_kv_heads, attention.n_heads) == (2, 4)
    assert attention.q_proj.weight.shape[0] == 4 * 8
    assert words == "tensor parallel on 2 ranks"


def test_lower_ranks_have_the_odd_parts():
    assert [share(5, rank, 3) for rank in range(3)] == [slice(0, 2), slice(2, 4), slice(4, 5)]


def test_a_bias_behind_the_sum_is_added_once(monkeypatch):
    """Two ranks that compute the same number: their sum is twice that, with one bias."""
    model, _ = cut(0, 2, attention_bias=True)
    projection = model.layers[0].self_attn.o_proj
    monkeypatch.setattr(mx.distributed, "all_sum", lambda x, group: 2 * x)

    x = mx.ones((1, projection.part.weight.shape[1]))
    want = 2 * np.array(projection.part.weight).sum(axis=1) + np.array(projection.bias)
    assert np.allclose(np.array(projection(x))[0], want, atol=1e-5)


def mlx_lm_model(name, **config):
    return build_module({**tiny_config(), **COMMON, **FOLDERS[name], **config})


def test_other_widths_that_the_ranks_do_not_divide_make_a_pipeline():
    model = mlx_lm_model("pipeline", intermediate_size=64)  # of 6 heads in 3 groups

    assert sharing(group_of(0, 3)).cut(model) == "pipeline of 3 ranks"


def unnamed_width():
    model = mlx_lm_model("tensor", num_attention_heads=6, num_key_value_heads=3)
    model.args.intermediate_size = None  # as a type of model that calls it otherwise
    return model


@pytest.mark.parametrize(
    ("make", "size", "said"),
    [
        (lambda: tiny_model(**SIZES), 4, "3 groups of heads runs on 3 ranks at most"),
        (lambda: mlx_lm_model("tensor"), 3, "they do not divide its num_attention_heads of 4"),
        (unnamed_width, 3, "size 64 across 3 devices; choose another"),
    ],
)
def test_a_model_that_the_ranks_cannot_share_is_refused_in_words(make, size, said):
    with pytest.raises(UnsupportedModelError, match=said):
        sharing(group_of(0, size)).cut(make())


def test_what_the_other_ranks_do_not_know_or_have_is_refused():
    alone = ShardedModel(tiny_model(), Orders(print), has_all_layers=True)
    with pytest.raises(UnsupportedOperationError, match="not supported with --hosts"):
        Decoder(alone).observe([1, 2])
    part = ShardedModel(tiny_model(), Orders(print), has_all_layers=False)
    with pytest.raises(UnsupportedOperationError, match="on other ranks"):
        part.check_capture()
