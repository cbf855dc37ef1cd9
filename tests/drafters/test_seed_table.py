"""The seed table: how a tokenizer reads the seed text, what is kept, and what it weighs."""

import lzma
import random
from collections import Counter, defaultdict
from threading import Event
from types import SimpleNamespace

import pytest

from mlxspec.drafters.table import seed_table
from mlxspec.drafters.table.drafter import TableDrafter
from mlxspec.drafters.table.memory import TableMemory
from mlxspec.drafters.table.rows import extend, unpack
from mlxspec.drafters.table.seed_table import SeedTable, find_seed_table, observe_texts
from mlxspec.text.tokenizer import Tokenizer
from tests.loading.test_tokenizer import byte_level, sentencepiece
from tests.support.drafting import KEY, NONE, SAMPLING, after, learned, stored_rows

WORDS = "the cat sat on a mat and it was not a dog, so they said: well done. Then".split()  # noqa: SIM905


def sentences(count, seed=0, length=60):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=length)) + ".\n\n  Yes" for _ in range(count)]


TEXTS = [*sentences(30), "a </s> b <|end|> c", "for i in range(10):\n    print(i)  # twice\n"]
TOKENIZER = Tokenizer(byte_level(TEXTS, size=300))


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A small seed text in place of the one that comes with mlxspec."""
    path = tmp_path / "seed.xz"
    path.write_bytes(lzma.compress("\0".join(TEXTS).encode()))
    monkeypatch.setattr(seed_table, "shipped_seed", lambda: path)
    monkeypatch.setattr(seed_table, "FEWEST_TOKENS", 10)
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    seed_table.seed_text_digest.cache_clear()
    yield path
    seed_table.seed_text_digest.cache_clear()


# ---- its table -------------------------------------------------------------------------------


def counted(texts, encode):
    """{context: {token: how often}} of one to three tokens, counted token by token."""
    counts = defaultdict(Counter)
    for text in texts:
        tokens = encode(text)
        for place in range(1, len(tokens)):
            for order in range(1, min(place, 3) + 1):
                counts[tuple(tokens[place - order : place])][tokens[place]] += 1
    return counts


def observed(occurrences):
    counts = defaultdict(Counter)
    rows = zip(unpack(occurrences.contexts, 3).tolist(), occurrences.tokens.tolist(), strict=True)
    for context, (token,) in rows:
        for order in (1, 2, 3):
            if -1 not in context[-order:]:
                counts[tuple(context[-order:])][token] += 1
    return counts


def test_the_counts_are_those_of_whole_texts():
    whole = TOKENIZER.wrapped.backend_tokenizer.from_str(
        TOKENIZER.wrapped.backend_tokenizer.to_str()
    )
    whole.encode_special_tokens = True  # what looks like the end of a turn is text here
    expected = counted(TEXTS, lambda text: whole.encode(text, add_special_tokens=False).ids)
    assert observed(observe_texts(TOKENIZER, TEXTS)) == expected


def test_a_tokenizer_of_sentencepiece_reads_words_as_in_the_middle_of_a_text():
    tokenizer = Tokenizer(sentencepiece())
    start = tokenizer.encode("\n")
    expected = counted(TEXTS[:5], lambda text: tokenizer.encode("\n" + text)[len(start) :])
    assert observed(observe_texts(tokenizer, TEXTS[:5])) == expected


def test_a_long_text_is_read_up_to_a_bound(monkeypatch):
    whole = len(observe_texts(TOKENIZER, TEXTS).tokens)
    monkeypatch.setattr(seed_table, "_MOST_TOKENS", whole // 2)
    assert 0.3 * whole < len(observe_texts(TOKENIZER, TEXTS).tokens) < 0.7 * whole


def made(vocab_size=300, say=lambda line: None):
    table = SeedTable(TOKENIZER, vocab_size, seed_table.seed_folder(), say)
    table.wait()
    return table


def files():
    return sorted(path.name for path in seed_table.seed_folder().glob("*.safetensors"))


def test_the_table_is_made_once_and_then_read(shipped, monkeypatch):
    first = made().rows
    assert len(first[0]) > 10
    assert files() == [f"{TOKENIZER.fingerprint[:16]}-{seed_table.seed_text_digest()}.safetensors"]
    monkeypatch.setattr(seed_table, "build_table", None)  # what calls it fails
    again = made().rows
    assert [list(rows) for rows in again] == [list(rows) for rows in first]


def test_a_damaged_file_is_made_anew(shipped):
    first = made().rows
    path = seed_table.seed_folder() / files()[0]
    sound = path.read_bytes()
    path.write_bytes(sound[:-50] + b"\1" * 50)
    said = []
    assert [list(rows) for rows in made(say=said.append).rows] == [list(rows) for rows in first]
    assert path.read_bytes() == sound
    assert said == []


def test_a_text_that_changed_makes_another_file_in_place_of_the_first(shipped):
    made()
    before = files()
    shipped.write_bytes(lzma.compress("\0".join(TEXTS[:9]).encode()))
    seed_table.seed_text_digest.cache_clear()
    made()
    assert len(files()) == 1
    assert files() != before


def test_where_nothing_can_be_stored_the_rows_are_used_all_the_same(shipped, tmp_path):
    (tmp_path / "home").write_text("no folder")
    assert len(made().rows[0]) > 10


def test_a_text_that_cannot_be_read_is_said_and_no_rows_are_used(shipped):
    shipped.write_bytes(b"nothing")
    said = []
    assert made(say=said.append).rows == ()
    assert "the seed text is not used" in said[0]


def test_tokens_that_the_target_lacks_are_not_drafted(shipped):
    assert made(vocab_size=290).rows == ()


def test_a_tokenizer_of_characters_has_no_seed(shipped, monkeypatch):
    monkeypatch.setattr(seed_table, "FEWEST_TOKENS", 2_000)
    assert find_seed_table(TOKENIZER, 300, print) is None


def test_engines_of_one_tokenizer_share_the_table(shipped):
    first = find_seed_table(TOKENIZER, 300, print)
    assert find_seed_table(TOKENIZER, 300, print) is first
    first.wait()


def test_nobody_waits_for_the_table_but_who_says_so(shipped, monkeypatch):
    may_end, was_told = Event(), []

    def slow(path):
        was_told.append(may_end.wait(5))  # False if somebody waits for this thread
        return TEXTS

    monkeypatch.setattr(seed_table, "read_seed", slow)
    table = find_seed_table(TOKENIZER, 300, print)
    drafter = TableDrafter(seed_table=table)
    drafter.start([7, 8], SAMPLING, KEY)
    assert after(drafter, 7, 8) == {}
    may_end.set()
    table.wait()
    assert was_told == [True]
    drafter.start([7, 8], SAMPLING, KEY)
    token = next(iter(table.rows[0])) - 1
    assert after(drafter, token)


# ---- what it weighs --------------------------------------------------------------------------

ROWS = stored_rows({(9,): (200, {1: 1.0})}, {(8, 9): (200, {1: 1.0})}, {(7, 8, 9): (200, {1: 1.0})})
SEED = SimpleNamespace(rows=ROWS)


def test_the_seed_is_drafted_before_anything_was_said():
    assert after(TableDrafter(seed_table=SEED), 7, 8, 9) == pytest.approx({1: 1.0}, abs=0.02)


def test_what_the_target_says_here_outweighs_it_at_once():
    drafter = learned(*[[(8, NONE), (9, {2: 1.0})]] * 3, seed_table=SEED)
    probs = after(drafter, 8, 9)
    assert probs[2] > 2 * probs[1]


def test_what_was_learned_in_an_evening_outweighs_it(tmp_path):
    memory = TableMemory(tmp_path / "learned.safetensors", 20)
    for _ in range(5):
        memory.learn([extend(0, 7, 8, 9)], [[2]], [[1.0]])
    probs = after(TableDrafter(memory=memory, seed_table=SEED), 7, 8, 9)
    assert probs[2] > probs[1]


def test_a_drafter_made_anew_has_it_too():
    assert after(TableDrafter(seed_table=SEED).fresh(), 9)[1] > 0.9
