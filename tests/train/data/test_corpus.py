"""Corpora on disk: a written corpus loads again, and a damaged one is refused."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from safetensors.numpy import save_file

from mlxspec.errors import MlxspecError
from mlxspec.train.data.corpus import Conversation, load_corpus, save_corpus, shard_path

VOCAB = 50


def conversation(tokens, mask, is_heldout=False):
    return Conversation(np.array(tokens, np.int32), np.array(mask, np.uint8), is_heldout)


FIRST = conversation([1, 2, 3, 4, 5], [0, 0, 1, 1, 1])
SECOND = conversation([7, 49, 0, 8], [0, 3, 0, 2], is_heldout=True)


def arrays(**changed):
    whole = {
        "tokens": np.array([1, 2, 3, 7, 49], np.uint16),
        "offsets": np.array([0, 3, 5], np.int64),
        "assistant_mask": np.array([0, 1, 1, 0, 2], np.uint8),
        "heldout": np.array([0, 1], np.uint8),
    }
    return whole | changed


def same(first, second):
    return (
        first.tokens.tolist() == second.tokens.tolist()
        and first.mask.tolist() == second.mask.tolist()
        and first.is_heldout is second.is_heldout
    )


def test_a_file_gives_back_what_was_written(tmp_path):
    save_corpus(tmp_path / "a.safetensors", [FIRST, SECOND])
    loaded = load_corpus(tmp_path / "a.safetensors", VOCAB)
    assert len(loaded) == 2
    assert same(loaded[0], FIRST)
    assert same(loaded[1], SECOND)
    assert loaded[0].tokens.dtype == np.int32


def test_a_file_of_another_maker_with_small_integers_is_read(tmp_path):
    save_file(arrays(source=np.zeros(2, np.uint8)), tmp_path / "a.safetensors")
    first, second = load_corpus(tmp_path / "a.safetensors", VOCAB)
    assert same(first, conversation([1, 2, 3], [0, 1, 1]))
    assert same(second, conversation([7, 49], [0, 2], is_heldout=True))


def test_the_shards_of_a_folder_are_read_in_order_and_nothing_else(tmp_path):
    for shard, member in enumerate([FIRST, SECOND, SECOND]):
        save_corpus(shard_path(tmp_path, shard), [member])
    (tmp_path / "corpus-00003.partial").write_bytes(b"half")
    (tmp_path / "corpus.json").write_text("{}")
    loaded = load_corpus(tmp_path, VOCAB)
    assert [same(c, FIRST) for c in loaded] == [True, False, False]


def test_spans_are_the_answers():
    both = conversation([1] * 8, [0, 1, 1, 0, 0, 3, 3, 3])
    assert both.spans() == [(1, 3), (5, 8)]
    assert both.spans(1) == [(1, 3)]
    assert both.spans(3) == [(5, 8)]
    assert both.spans(2) == []


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        *(({name: None}, name) for name in ("tokens", "offsets", "assistant_mask", "heldout")),
        ({"offsets": np.array([0, 3, 6])}, "damaged"),
        ({"offsets": np.array([1, 3, 5])}, "damaged"),
        ({"offsets": np.array([0, 3, 3, 5]), "heldout": np.zeros(3, np.uint8)}, "damaged"),
        (
            {"offsets": np.array([0, 4, 3, 5], np.uint64), "heldout": np.zeros(3, np.uint8)},
            "damaged",
        ),
        ({"offsets": np.zeros(0, np.int64)}, "damaged"),
        ({"offsets": np.array([0.0, 3.0, 5.0])}, "damaged"),
        ({"heldout": np.zeros(1, np.uint8)}, "damaged"),
        ({"assistant_mask": np.zeros(4, np.uint8)}, "damaged"),
        ({"tokens": np.ones((5, 1), np.int32)}, "damaged"),
        ({"tokens": np.ones(5, np.float32)}, "damaged"),
        ({"tokens": np.array([1, 2, VOCAB, 7, 4])}, f"token {VOCAB}; .* ends at {VOCAB - 1}"),
        ({"tokens": np.array([1, 2, -1, 7, 4])}, "token -1; "),
    ],
)
def test_a_damaged_corpus_is_refused(tmp_path, damage, message):
    held = {name: array for name, array in arrays(**damage).items() if array is not None}
    save_file(held, tmp_path / "a.safetensors")
    with pytest.raises(MlxspecError, match=message):
        load_corpus(tmp_path / "a.safetensors", VOCAB)


@pytest.mark.parametrize("content", [b"", b"no tensors here", None])
def test_what_is_no_corpus_is_refused(tmp_path, content):
    path = tmp_path / "a.safetensors"
    if content is None:
        mx.save_safetensors(str(path), {"weight": mx.zeros((2, 2), mx.bfloat16)})
    else:
        path.write_bytes(content)
    with pytest.raises(MlxspecError, match=r"a\.safetensors"):
        load_corpus(path, VOCAB)


def test_a_missing_corpus_says_how_to_make_one(tmp_path):
    for path in (tmp_path / "none", tmp_path):  # the second is a folder without shards
        with pytest.raises(MlxspecError, match="mlxspec train data"):
            load_corpus(path, VOCAB)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_write_leaves_what_was_there(tmp_path, monkeypatch, error):
    path = tmp_path / "a.safetensors"
    save_corpus(path, [FIRST])

    def break_off(target, arrays, metadata):
        Path(target).write_bytes(b"half")
        raise error

    monkeypatch.setattr(mx, "save_safetensors", break_off)
    with pytest.raises(KeyboardInterrupt if error is KeyboardInterrupt else MlxspecError):
        save_corpus(path, [SECOND])
    assert same(load_corpus(path, VOCAB)[0], FIRST)
    assert error is KeyboardInterrupt or list(tmp_path.iterdir()) == [path]
