"""Making a table: means against a slow count in dicts, and the choice of rows for the file."""

from collections import defaultdict

import numpy as np
import pytest

from mlxspec.drafters.table.building import Occurrences, build_table
from mlxspec.drafters.table.drafter import TableDrafter
from mlxspec.drafters.table.file import load_table, save_table
from mlxspec.drafters.table.rows import extend
from mlxspec.errors import MlxspecError
from mlxspec.params import SamplingParams
from mlxspec.train.data.corpus import Conversation
from mlxspec.train.features import write_shards
from mlxspec.train.methods.table import observe
from tests.support.tiny import tiny_model
from tests.support.truth import Target

VOCAB = 24
MANY = 10_000_000


def conversation(tokens, mask, *, is_heldout=False):
    return Conversation(np.array(tokens, np.int32), np.array(mask, np.uint8), is_heldout)


def random_corpus(count, length=40, seed=3):
    """Texts that repeat themselves; the first quarter of each is a prompt."""
    rng = np.random.default_rng(seed)
    mask = [0] * (length // 4) + [2] * (length - length // 4)
    texts = rng.zipf(1.6, (count, length)) % VOCAB
    return [conversation(text, mask) for text in texts]


def slow_means(rows):
    """{order: {context: (occurrences, {token: mean probability})}} of (text, {token: prob})."""
    counts, sums = defaultdict(int), defaultdict(lambda: defaultdict(float))
    for text, probs in rows:
        for order in (1, 2, 3):
            if len(text) >= order:
                context = tuple(text[-order:])
                counts[context] += 1
                for token, prob in probs.items():
                    sums[context][token] += prob
    means = {order: {} for order in (1, 2, 3)}
    for context, count in counts.items():
        probs = {token: total / count for token, total in sums[context].items()}
        means[len(context)][context] = count, probs
    return means


def sampled_rows(corpus):
    for one in corpus:
        tokens = one.tokens.tolist()
        for place in np.flatnonzero(one.mask[1:]):
            yield tokens[: place + 1], {tokens[place + 1]: 1.0}


def assert_rows_are(stored, means, widths=(16, 8, 4)):
    """Every stored row is the mean of all occurrences, cut to its most probable tokens."""
    for order, rows in enumerate(stored, 1):
        by_context = {extend(0, *context): row for context, row in means[order].items()}
        for context in rows:
            count, probs = by_context[context]
            row = rows.get(context)
            assert row.occurrences == min(count, 255)
            best = sorted((prob for prob in probs.values() if prob >= 0.02), reverse=True)
            kept = sorted((mass / row.occurrences for mass in row.masses.values()), reverse=True)
            assert kept == pytest.approx(best[: widths[order - 1]], abs=0.005)
            for token, mass in row.masses.items():
                assert mass / row.occurrences == pytest.approx(probs[token], abs=0.005)


def test_rows_of_samples_are_the_shares_of_what_followed():
    corpus = random_corpus(60)
    means = slow_means(sampled_rows(corpus))
    stored = build_table(observe(corpus), VOCAB, max_bytes=MANY)
    assert_rows_are(stored, means)
    assert set(stored[0]) == {extend(0, *context) for context in means[1]}
    for order in (2, 3):  # contexts of several tokens that were seen once are left out
        again = {extend(0, *c) for c, (count, _) in means[order].items() if count > 1}
        assert set(stored[order - 1]) <= again
        assert len(stored[order - 1]) > 0.9 * len(again)  # the others say nothing new


def test_rows_of_features_are_means_of_the_targets_probabilities(tmp_path):
    corpus = random_corpus(6, length=30)
    model = tiny_model(vocab_size=VOCAB)
    write_shards(model, corpus, [("train-00000", [0, 1, 2])], tmp_path, (), lambda n: None)
    shards = [tmp_path / "train-00000.safetensors"]
    stored = build_table(observe(corpus, shards), VOCAB, max_bytes=MANY)
    target, rows = Target(model), list(sampled_rows(corpus[3:]))
    for one in corpus[:3]:
        for place in np.flatnonzero(one.mask[1:]):
            text = one.tokens[: place + 1].tolist()
            probs = target.distribution(tuple(text), SamplingParams(temperature=1.0), 0)
            rows.append((text, {token: probs[token] for token in np.argsort(-probs)[:8].tolist()}))
    assert_rows_are(stored, slow_means(rows))


def test_heldout_conversations_are_not_learned_from_with_or_without_features(tmp_path):
    hidden = [conversation([5, 6, 7, 8], [0, 1, 1, 1], is_heldout=True) for _ in range(2)]
    corpus = [*hidden, conversation([1, 2, 3], [0, 1, 1])]
    model = tiny_model(vocab_size=VOCAB)
    write_shards(model, corpus, [("heldout-00000", [0])], tmp_path, (), lambda n: None)
    stored = build_table(
        observe(corpus, [tmp_path / "heldout-00000.safetensors"]), VOCAB, max_bytes=MANY
    )
    assert set(stored[0]) == {extend(0, 1), extend(0, 2)}


def test_the_users_text_is_context_but_is_not_predicted():
    stored = build_table(observe([conversation([1, 2, 3, 4], [0, 0, 1, 0])]), VOCAB)
    assert set(stored[0]) == {extend(0, 2)}


def test_refuses_a_corpus_with_nothing_to_learn():
    with pytest.raises(MlxspecError, match="held out"):
        observe([conversation([1, 2], [0, 1], is_heldout=True)])
    with pytest.raises(MlxspecError, match="mlxspec train data"):
        observe([conversation([1, 2], [0, 0])])


@pytest.mark.parametrize("max_bytes", [9_000, 10_000, 12_000])
def test_fills_the_allowed_size_and_never_passes_it(tmp_path, max_bytes):
    stored = build_table(observe(random_corpus(100)), VOCAB, max_bytes=max_bytes)
    path = tmp_path / "table.safetensors"
    save_table(path, stored, VOCAB)
    smaller = build_table(observe(random_corpus(100)), VOCAB, max_bytes=max_bytes - 500)
    assert path.stat().st_size <= max_bytes
    assert sum(map(len, smaller)) < sum(map(len, stored))
    data = sum(len(rows.tokens) * 3 + len(rows) * (2 * n + 2) for n, rows in enumerate(stored, 1))
    assert max_bytes - 8_192 - 40 < data <= max_bytes - 8_192


def test_refuses_a_size_without_room_for_rows():
    with pytest.raises(ValueError, match="more than 8192, not 100"):
        build_table(observe(random_corpus(2)), VOCAB, max_bytes=100)


def test_a_row_with_new_information_comes_before_one_that_repeats_the_shorter_context():
    # After 5: 1 and 2 by halves. After "3 5" too; after "4 5" always 1, after "6 5" always 2.
    texts = [([0, 3, 5], 1), ([0, 3, 5], 2), ([0, 4, 5], 1), ([0, 6, 5], 2)] * 8
    stored = build_table([_occurrences(texts)], VOCAB, max_bytes=8_192 + 4 + 6 + 2 * (6 + 3))
    assert set(stored[0]) == {extend(0, 5)}
    assert set(stored[1]) == {extend(0, 4, 5), extend(0, 6, 5)}
    assert set(stored[2]) == set()


def test_the_row_of_the_more_frequent_context_is_stored():
    texts = [([0, 0, 5], 1)] * 9 + [([0, 0, 6], 1)] * 3
    stored = build_table([_occurrences(texts)], VOCAB, max_bytes=8_192 + 4 + 3)
    assert [set(rows) for rows in stored] == [{extend(0, 5)}, set(), set()]


def _occurrences(texts):
    return Occurrences(
        np.array([extend(0, *text) for text, _ in texts]),
        np.array([[token] for _, token in texts], np.int32),
        np.ones((len(texts), 1), np.float32),
    )


def test_the_drafter_of_a_built_table_proposes_what_followed(tmp_path):
    texts = [([1, 2, 3], 4), ([2, 3, 4], 5), ([3, 4, 5], 6)] * 20
    path = tmp_path / "table.safetensors"
    save_table(path, build_table([_occurrences(texts)], VOCAB), VOCAB)
    drafter = TableDrafter(load_table(path, VOCAB))
    drafter.start([1, 2, 3], None, None)
    assert drafter.propose(3, 3).tree.tokens.tolist() == [3, 4, 5, 6]
