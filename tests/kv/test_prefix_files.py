"""Files of rows: the longest beginning of a text is found, and nothing that does not fit it."""

import os
import stat
import subprocess
import sys

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.kv.prefix_files import NO_CHAT, PrefixFiles
from mlxspec.kv.prefixes import PrefixCache
from mlxspec.kv.steady import CHUNK, Steady

TEXT = [int(token) for token in np.random.default_rng(3).integers(0, 1000, 3 * CHUNK + 40)]
OTHER = "1" * 16


def rows_of(tokens, dtype=mx.float32):
    """Two planes whose rows follow from all tokens up to theirs, as keys and values do."""
    sums = np.cumsum([(17 * token + index) % 97 for index, token in enumerate(tokens)])
    first = mx.array(np.tile(sums[None, None, :, None], (1, 2, 1, 3)), mx.float32).astype(dtype)
    second = mx.array(np.tile(sums[None, None, :, None], (1, 2, 1, 1)), mx.float32).astype(dtype)
    return lambda start, end: [first[:, :, start:end], second[:, :, start:end]]


def stored(folder, tokens=TEXT, *, key="a model", label=NO_CHAT, steady=None, **how):
    files = PrefixFiles(folder, key, **how)
    files.add(tokens, rows_of(tokens), steady, label=label)
    return files


def length_of(folder, tokens=TEXT, key="a model", steady=None):
    return PrefixFiles(folder, key).find(tokens, steady)[0]


def sizes(folder):
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16, mx.uint32], ids=str)
@pytest.mark.parametrize("length", [1, CHUNK - 1, CHUNK, CHUNK + 1, len(TEXT)])
def test_a_beginning_is_found_with_its_rows_and_room_for_more(tmp_path, length, dtype):
    files = PrefixFiles(tmp_path, "a model")
    files.add(TEXT[:length], rows_of(TEXT, dtype), None)
    found, planes = files.find(TEXT, None)
    assert found == length
    for plane, true in zip(planes, rows_of(TEXT, dtype)(0, length), strict=True):
        assert plane.dtype == dtype
        assert mx.array_equal(plane[:, :, :length], true)
        assert plane.shape[2] > length


def test_a_text_that_goes_another_way_shares_whole_chunks(tmp_path):
    stored(tmp_path)
    assert length_of(tmp_path, [*TEXT[: 2 * CHUNK + 5], 1000]) == 2 * CHUNK
    assert length_of(tmp_path, [1000, *TEXT]) == 0


def test_a_text_that_grows_adds_only_what_is_new(tmp_path):
    stored(tmp_path, TEXT[: CHUNK + 7])
    first = next(tmp_path.glob(f"*-{CHUNK}-*"))
    at = first.stat().st_ino
    stored(tmp_path)
    assert first.stat().st_ino == at
    ends = sorted(int(path.name.split("-")[1]) for path in tmp_path.iterdir())
    assert ends == [CHUNK, 2 * CHUNK, 3 * CHUNK, len(TEXT)]  # what followed a chunk once is gone


@pytest.mark.parametrize("change", [{"key": "another"}, {"steady": Steady(8, pads_keys=True)}])
def test_rows_of_other_models_and_other_forwards_are_not_found(tmp_path, change):
    stored(tmp_path)
    assert length_of(tmp_path) == len(TEXT)
    assert length_of(tmp_path, **change) == 0


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[-3] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [cut_short, flip_a_bit, lambda path: path.write_bytes(b"")])
def test_a_damaged_file_ends_the_beginning_and_is_deleted(tmp_path, damage):
    files = stored(tmp_path)
    (second,) = tmp_path.glob(f"*-{2 * CHUNK}-*")
    damage(second)
    found, planes = files.find(TEXT, None)
    assert found == CHUNK
    assert mx.array_equal(planes[0][:, :, :CHUNK], rows_of(TEXT)(0, CHUNK)[0])
    assert not second.exists()
    files.add(TEXT, rows_of(TEXT), None)
    assert length_of(tmp_path) == len(TEXT)


def test_a_text_is_known_up_to_the_first_chunk_that_is_gone(tmp_path):
    stored(tmp_path)
    next(tmp_path.glob(f"*-{2 * CHUNK}-*")).unlink()
    assert length_of(tmp_path) == CHUNK


def test_foreign_files_are_left_alone(tmp_path):
    for name in ("notes.txt", "model.safetensors", f"{NO_CHAT}-1-{'a' * 32}-00000000.txt"):
        (tmp_path / name).write_text("mine")
    stored(tmp_path, max_bytes=1)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"] * 3


def test_only_the_owner_can_read_the_files(tmp_path):
    folder = tmp_path / "new" / "rows"
    stored(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_the_text_used_longest_ago_goes_first_and_its_start_last(tmp_path):
    texts = [[number, *TEXT] for number in (1, 2, 3)]
    stored(tmp_path, texts[0])
    size = sizes(tmp_path)
    stored(tmp_path, texts[1])
    length_of(tmp_path, texts[0])
    stored(tmp_path, texts[2], max_bytes=2 * size + size // 3)
    assert sizes(tmp_path) <= 2 * size + size // 3
    lengths = [length_of(tmp_path, text) for text in texts]
    assert lengths[0] == lengths[2] == len(texts[0])
    assert lengths[1] == CHUNK


def test_a_text_larger_than_all_is_kept_in_part_and_its_end_not_written(tmp_path, monkeypatch):
    written, replace = [], os.replace
    monkeypatch.setattr(os, "replace", lambda *names: (written.append(names), replace(*names)))
    stored(tmp_path, max_bytes=9000)
    assert len(written) == 3
    assert sizes(tmp_path) <= 9000
    assert length_of(tmp_path) == 2 * CHUNK


def test_an_interrupted_write_leaves_no_file(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stored(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_deleted_after_an_hour(tmp_path):
    old, new = (tmp_path / f"{NO_CHAT}-{name}.part.safetensors" for name in ("old", "new"))
    for part in (old, new):
        part.write_bytes(b"half")
    os.utime(old, (1, 1))
    stored(tmp_path)
    assert [old.exists(), new.exists()] == [False, True]


def test_stops_before_the_next_file(tmp_path):
    asked = iter([False, True])
    PrefixFiles(tmp_path, "a model").add(TEXT, rows_of(TEXT), None, should_stop=lambda: next(asked))
    assert length_of(tmp_path) == CHUNK


def test_each_chat_has_files_of_its_own(tmp_path):
    for label in (NO_CHAT, OTHER):
        stored(tmp_path, label=label)
    for path in tmp_path.glob(f"{NO_CHAT}-*"):
        path.unlink()
    assert length_of(tmp_path) == len(TEXT)


def test_a_folder_that_cannot_be_written_stores_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    stored(tmp_path / "file")
    assert length_of(tmp_path / "file") == 0


def test_two_processes_write_the_same_text_at_once(tmp_path):
    code = (
        "from pathlib import Path\nfrom tests.kv.test_prefix_files import stored\n"
        f"for number in range(5): stored(Path({str(tmp_path)!r}), max_bytes=20_000)"
    )
    both = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert length_of(tmp_path) == len(TEXT)
    assert sizes(tmp_path) <= 20_000
    assert list(tmp_path.glob("*.part.*")) == []


# ---- below the rows in memory ---------------------------------------------------------------


def test_files_are_read_only_where_they_know_more_than_is_of_use(tmp_path, monkeypatch):
    stored(tmp_path, TEXT[: 2 * CHUNK])
    cache = PrefixCache(1 << 30, files=PrefixFiles(tmp_path, "a model"))
    cache.add(TEXT[:CHUNK], rows_of(TEXT))
    assert cache.find(TEXT).length == 2 * CHUNK
    assert cache.find(TEXT, beyond=2 * CHUNK).length == CHUNK
    cache.add(TEXT, rows_of(TEXT))
    assert cache.find(TEXT).length == len(TEXT)


def test_saves_the_texts_stored_since_the_last_time_and_no_beginning_of_another(tmp_path):
    cache = PrefixCache(1 << 30, files=PrefixFiles(tmp_path, "a model"))
    for text in (TEXT[:50], TEXT, [7, *TEXT]):
        cache.add(text, rows_of(text))
    assert not list(tmp_path.iterdir())
    cache.save()
    ends = sorted(int(path.name.split("-")[1]) for path in tmp_path.iterdir())
    assert ends == sorted([*[CHUNK, 2 * CHUNK, 3 * CHUNK] * 2, len(TEXT), len(TEXT) + 1])
    fresh = PrefixCache(1 << 30, files=PrefixFiles(tmp_path, "a model")).find([7, *TEXT])
    assert mx.array_equal(
        fresh.planes[0][:, :, : fresh.length], rows_of([7, *TEXT])(0, len(TEXT) + 1)[0]
    )
    for path in tmp_path.iterdir():
        path.unlink()
    cache.save()
    assert not list(tmp_path.iterdir())
