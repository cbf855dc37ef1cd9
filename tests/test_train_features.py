"""Features against the target asked token by token."""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoder import Decoder
from mlxspec.errors import MlxspecError
from mlxspec.train.features import read_shard, shard_arrays, shard_order, shard_paths, write_shards
from tests.tiny import tiny_model
from tests.training import LAYERS, conversation, features, write_features


@pytest.fixture(params=["llama", "qwen2"])
def model(request):
    return tiny_model(request.param)


def test_states_are_those_of_the_target(model):
    got = features(model)
    decoder = Decoder(model)
    decoder.observe(got.tokens.tolist())
    final, entering = decoder.hidden_states(LAYERS[:2])
    np.testing.assert_allclose(got.final, final, rtol=1e-4, atol=1e-4)
    for layer, states in zip(LAYERS[:2], entering, strict=True):
        np.testing.assert_allclose(got.entering[layer], states, rtol=1e-4, atol=1e-4)


def test_the_most_probable_tokens_are_those_of_the_target_where_the_assistant_speaks(model):
    got = features(model, prompt=6)
    probs = np.array(mx.softmax(model.logits(got.final), axis=-1))
    for place in range(5, len(got.tokens) - 1):
        expected = np.argsort(-probs[place], kind="stable")[:8]
        np.testing.assert_array_equal(got.top_tokens[place], expected)
        np.testing.assert_allclose(got.top_probs[place], probs[place][expected], atol=1e-3)


def test_there_are_no_probabilities_where_the_next_token_is_not_the_assistants(model):
    got = features(model, prompt=6)
    assert not got.top_probs[:5].any()
    assert not got.top_probs[-1].any()


def test_shards_hold_what_was_computed(model, tmp_path):
    corpus = [conversation(length, seed=length) for length in (9, 14)]
    write_shards(model, corpus, [("train-00000", [1, 0])], tmp_path, LAYERS, lambda tokens: None)
    for read, length in zip(read_shard(tmp_path / "train-00000.safetensors"), (14, 9), strict=True):
        expected = features(model, length=length, seed=length)
        np.testing.assert_array_equal(read.tokens, expected.tokens)
        np.testing.assert_array_equal(read.mask, expected.mask)
        np.testing.assert_array_equal(read.top_tokens, expected.top_tokens)
        for layer in LAYERS:
            np.testing.assert_allclose(
                read.entering[layer].astype(mx.float32), expected.entering[layer], rtol=0.01
            )


def test_shards_that_are_there_are_not_computed_again(model, tmp_path):
    corpus, seen = [conversation()], []
    for _ in range(2):
        write_shards(model, corpus, [("train-00000", [0])], tmp_path, LAYERS, seen.append)
    assert seen == [20]


def test_every_conversation_is_in_one_shard_and_held_out_ones_stay_apart():
    corpus = [conversation(is_heldout=i % 3 == 0) for i in range(200)]
    shards = dict(shard_order(corpus, max_heldout=50))
    train = [i for name, members in shards.items() if "train" in name for i in members]
    heldout = [i for name, members in shards.items() if "heldout" in name for i in members]
    assert sorted(train) == [i for i in range(200) if i % 3]
    assert len(set(heldout)) == 50
    assert all(i % 3 == 0 for i in heldout)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"final": None}, "no array 'final'"),
        ({"offsets": None}, "no array 'offsets'"),
        ({"offsets": mx.array([0, 20, 50])}, "offsets do not fit"),
        ({"offsets": mx.array([0, 30, 20])}, "offsets do not fit"),
        ({"entering.1": mx.zeros((5, 64))}, "offsets do not fit"),
    ],
)
def test_what_is_no_shard_is_named(tmp_path, changes, message):
    (path,) = shard_paths(write_features(tmp_path, num_train=2, num_heldout=0), "train")
    arrays = {**mx.load(str(path)), **changes}
    mx.save_safetensors(str(path), {k: v for k, v in arrays.items() if v is not None})
    with pytest.raises(MlxspecError, match=message):
        shard_arrays(path)


def test_a_shard_that_was_not_finished_is_none(tmp_path):
    (tmp_path / "train-00000.safetensors.part.safetensors").write_bytes(b"half")
    assert shard_paths(tmp_path, "train") == []
