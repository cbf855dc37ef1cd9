"""Features against one forward of the target per token."""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.errors import MlxspecError
from mlxspec.train.features import missing_shards, read_shard, shard_paths, write_shards
from tests.support.tiny import tiny_model
from tests.support.training import LAYERS, conversation, features, write_features


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


def test_top_tokens_are_those_of_the_target_inside_answers(model):
    got = features(model, prompt=6)
    probs = np.array(mx.softmax(model.logits(got.final), axis=-1))
    for place in range(5, len(got.tokens) - 1):
        expected = np.argsort(-probs[place], kind="stable")[:8]
        np.testing.assert_array_equal(got.top_tokens[place], expected)
        np.testing.assert_allclose(got.top_probs[place], probs[place][expected], atol=1e-3)
    outside = [*range(5), len(got.tokens) - 1]  # there the next token is not the assistant's
    assert not got.top_probs[outside].any()


def test_shards_hold_what_was_computed(tmp_path):
    model = tiny_model()
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


def write(model, corpus, shards, folder):
    write_shards(model, corpus, shards, folder, (), lambda tokens: None)


def held(folder, kind):
    """The texts that a folder's shards hold, in order."""
    read = [one for path in shard_paths(folder, kind) for one in read_shard(path)]
    return [one.tokens.tolist() for one in read]


def many(count, first=0):
    """Conversations that all differ, every fifth held out."""
    seeds = range(first, first + count)
    return [conversation(4, seed=seed, prompt=2, is_heldout=seed % 5 == 0) for seed in seeds]


def test_every_conversation_is_in_one_shard_and_held_out_ones_stay_apart(tmp_path):
    corpus = many(200)
    shards = dict(missing_shards(corpus, tmp_path, max_heldout=30))
    train = [i for name, members in shards.items() if "train" in name for i in members]
    heldout = [i for name, members in shards.items() if "heldout" in name for i in members]
    assert sorted(train) == [i for i in range(200) if i % 5]
    assert len(set(heldout)) == 30
    assert all(i % 5 == 0 for i in heldout)
    assert [name for name in shards if "train" in name] == [f"train-0000{i}" for i in range(3)]


def test_an_interrupted_run_ends_with_the_same_shards(tmp_path):
    model, corpus = tiny_model(), many(200)
    whole = missing_shards(corpus, tmp_path, max_heldout=9)
    for count in (1, 2, 1):
        write(model, corpus, missing_shards(corpus, tmp_path, max_heldout=9)[:count], tmp_path)
    assert missing_shards(corpus, tmp_path, max_heldout=9) == whole[4:] == []
    expected = [corpus[i].tokens.tolist() for name, members in whole[1:] for i in members]
    assert held(tmp_path, "train") == expected


def test_what_a_corpus_grew_by_comes_into_shards_of_its_own(tmp_path):
    model, corpus = tiny_model(), many(100)
    write(model, corpus, missing_shards(corpus, tmp_path, max_heldout=22), tmp_path)
    before = held(tmp_path, "train")
    corpus = [*many(20, first=1000), *corpus]
    write(model, corpus, missing_shards(corpus, tmp_path, max_heldout=22), tmp_path)
    after = held(tmp_path, "train")
    assert after[: len(before)] == before
    assert sorted(after) == sorted(c.tokens.tolist() for c in corpus if not c.is_heldout)
    assert len({tuple(text) for text in held(tmp_path, "heldout")}) == 22


def test_shards_are_limited_in_all(tmp_path):
    model, corpus = tiny_model(), many(200)
    for limit, expected in ((1, ["train-00000"]), (2, ["train-00001"]), (2, [])):
        shards = missing_shards(corpus, tmp_path, max_heldout=0, max_train_shards=limit)
        assert [name for name, _ in shards] == expected
        write(model, corpus, shards, tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"final": None}, "no array 'final'"),
        ({"offsets": None}, "no array 'offsets'"),
        ({"offsets": mx.array([0, 20, 50])}, "train-00000"),
        ({"offsets": mx.array([0, 30, 20])}, "train-00000"),
        ({"entering.1": mx.zeros((5, 64))}, "train-00000"),
    ],
)
def test_what_is_no_shard_is_named(tmp_path, changes, message):
    (path,) = shard_paths(write_features(tmp_path, num_train=2, num_heldout=0), "train")
    arrays = {**mx.load(str(path)), **changes}
    mx.save_safetensors(str(path), {k: v for k, v in arrays.items() if v is not None})
    with pytest.raises(MlxspecError, match=message):
        list(read_shard(path))


def test_a_shard_that_was_not_finished_is_none(tmp_path):
    (tmp_path / "train-00000.safetensors.part.safetensors").write_bytes(b"half")
    assert shard_paths(tmp_path, "train") == []
