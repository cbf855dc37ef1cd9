"""The seed text: what is packed, and the one that comes with mlxspec."""

import lzma
import random

import pytest

from mlxspec.errors import MlxspecError
from mlxspec.text.seed_text import read_seed, shipped_seed, write_seed
from tests.support.paths import ROOT


def sentences(count):
    draw = random.Random(0)
    words = [f"word{number}" for number in range(40)]
    return [" ".join(draw.choices(words, k=60)) + "." for _ in range(count)]


def test_only_texts_that_say_something_new_are_packed(tmp_path):
    first, second = sentences(2)
    said = [first, "Too short.", first + " And more.", "broken \ufffd " + second, f" {second}\n"]
    kept = write_seed(tmp_path / "s.xz", said, 100_000)
    assert kept == read_seed(tmp_path / "s.xz") == [first, second]


def test_a_file_that_would_be_too_large_holds_the_first_texts(tmp_path):
    texts = sentences(200)
    kept = write_seed(tmp_path / "s.xz", texts, 4_000)
    assert 3_000 < (tmp_path / "s.xz").stat().st_size <= 4_000
    assert kept == texts[: len(kept)]


def test_a_damaged_text_is_refused(tmp_path):
    path = tmp_path / "s.xz"
    path.write_bytes(lzma.compress(b"a text")[:-9])
    with pytest.raises(MlxspecError, match="cannot be read"):
        read_seed(path)


def test_the_shipped_text_is_as_its_card_says_and_has_no_markup():
    assert shipped_seed().stat().st_size <= 4_000_000
    texts = read_seed(shipped_seed())
    card = (ROOT / "assets/seed/README.md").read_text()
    assert f"{len(texts):,} texts" in card
    assert f"{sum(len(text.encode()) for text in texts) / 1e6:.1f} MB" in card
    assert not any("<|im_start|>" in text or "<|im_end|>" in text for text in texts)
