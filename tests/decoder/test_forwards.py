"""Trees finished from rows that passed the lower layers before are as if run in one forward."""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafts.tree import DraftTree
from tests.support.decoders import TEXT
from tests.support.pairwise import each_value, pairwise
from tests.support.row_count import RowCount
from tests.support.shadow import committed_rows
from tests.support.tiny import make_cache, tiny_model
from tests.support.truth import Target

LAYERS, EXIT = 3, 2
CACHES = ("full", "rotating", "int8", "int4")
WINDOWS = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
MODELS = {
    "llama": tiny_model("llama", num_hidden_layers=LAYERS),
    "qwen2": tiny_model("qwen2", num_hidden_layers=LAYERS),
    "windows": tiny_model("qwen2", num_hidden_layers=LAYERS, **WINDOWS),
}
N_READ = 20  # past the ring
# A quantised row may fall into the next bucket when its value is rounded differently.
ATOL = {"full": 2e-4, "rotating": 2e-4, "int8": 0.02, "int4": 0.3}
CHAIN = [9, 4, 7]
TREES = {
    "the chain itself": ([9, 4, 7], [-1, 0, 1], [0, 1, 2]),
    "one more at the end": ([9, 4, 7, 3], [-1, 0, 1, 2], [0, 1, 2, 3]),
    "branches behind": ([9, 4, 7, 1, 3, 2], [-1, 0, 1, 0, 2, 3], [0, 3, 5]),
}


@dataclass
class Reader:
    """Keeps the states it is told."""

    capture: tuple[int, ...]
    num_read: int = 0

    def __post_init__(self):
        self.states = []

    def read(self, tokens, states):
        self.num_read += len(tokens)
        self.states.append({**states.entering, "final": states.final})

    def forget(self, length):
        self.num_read = length
        self.states.clear()


def decoder_after(family, kind, *readers, n_read=N_READ):
    model = MODELS[family]
    decoder = Decoder(model, make_cache(model, kind))
    decoder.attach(readers)
    decoder.observe(TEXT[:n_read])
    return decoder


def two_after(kind):
    """Two decoders that have read the same text; one gets lower rows of a chain."""
    whole, other = (decoder_after("llama", kind) for _ in range(2))
    lower(other, CHAIN)
    return whole, other


def lower(decoder, tokens, layer=EXIT):
    return [decoder.extend_lower(token, layer) for token in tokens]


def assert_close(got, expected, kind):
    np.testing.assert_allclose(got, expected, atol=ATOL[kind], rtol=1e-4)


@pairwise(shape=TREES, family=MODELS, kind=CACHES)
def test_a_finished_tree_says_and_keeps_what_one_forward_does(shape, family, kind):
    tokens, parents, path = TREES[shape]
    tree = DraftTree.from_lists(tokens, parents)
    whole, finished = (decoder_after(family, kind) for _ in range(2))
    lower(finished, CHAIN)
    assert_close(finished.forward_tree(tree), whole.forward_tree(tree), kind)
    for decoder in (whole, finished):
        decoder.commit(path)
    assert finished.history == whole.history
    expected, rows = committed_rows(whole), committed_rows(finished)
    assert list(rows) == list(expected)
    for position in rows:
        assert_close(rows[position], expected[position], kind)


@pytest.mark.parametrize(
    ("family", "kind"),
    [("llama", "full"), ("qwen2", "rotating"), ("windows", "full"), ("qwen2", "int8")],
)
@pytest.mark.parametrize("n_read", [4, N_READ], ids=["within the ring", "past the ring"])
def test_a_finished_tree_says_what_the_target_says_of_each_path(n_read, family, kind):
    tokens, parents, _ = TREES["branches behind"]
    decoder = decoder_after(family, kind, n_read=n_read)
    lower(decoder, CHAIN)
    logits = decoder.logits(decoder.forward_tree(DraftTree.from_lists(tokens, parents)))
    target = Target(MODELS[family], kind)
    for node, path in {2: [9, 4, 7], 3: [9, 1], 4: [9, 4, 7, 3], 5: [9, 1, 2]}.items():
        assert_close(logits[node], target.logits((*TEXT[:n_read], *path)), kind)


@each_value(family=MODELS, kind=CACHES)
def test_a_lower_row_is_the_state_that_enters_the_layer(family, kind):
    reader = Reader((EXIT,))
    decoder = decoder_after(family, kind, reader)
    states = mx.concatenate(lower(decoder, CHAIN))
    decoder.commit([])
    decoder.forward_tree(DraftTree.chain(mx.array(CHAIN)))
    decoder.commit([0, 1, 2])
    assert_close(states, reader.states[-1][EXIT], kind)


@pytest.mark.parametrize("shape", TREES)
def test_no_layer_reads_a_token_twice_and_both_passes_are_one_forward(shape, forwards):
    tokens, parents, _ = TREES[shape]
    decoder = decoder_after("llama", "full")
    before = forwards.of(decoder.model)
    with RowCount(LAYERS) as count:
        lower(decoder, CHAIN)
        assert count.rows == [3, 3, 0]
        assert forwards.of(decoder.model) == before
        decoder.forward_tree(DraftTree.from_lists(tokens, parents))
    assert count.rows == [len(tokens)] * LAYERS
    assert forwards.of(decoder.model) == before + 1


OTHER_TREES = {
    "another root": ([8, 4, 7], [-1, 0, 1]),
    "another token": ([9, 4, 6, 7], [-1, 0, 1, 1]),
    "another parent": ([9, 4, 7], [-1, 0, 0]),
    "a shorter chain": ([9, 4], [-1, 0]),
}


@pytest.mark.parametrize("kind", ["full", "rotating"])
@pytest.mark.parametrize("shape", OTHER_TREES)
def test_a_tree_that_does_not_begin_with_the_chain_discards_it(shape, kind):
    tree = DraftTree.from_lists(*OTHER_TREES[shape])
    whole, other = two_after(kind)
    with RowCount(LAYERS) as count:
        states = other.forward_tree(tree)
    assert count.rows == [tree.n_nodes] * LAYERS
    np.testing.assert_array_equal(states, whole.forward_tree(tree))
    assert other.cache.num_staged == tree.n_nodes


@pairwise(shape=TREES, capture=[(0, 1, 2, 3), (1,), (2,), (0, 3)], kind=["full", "rotating"])
def test_readers_are_told_the_same_states_as_by_one_forward(shape, capture, kind):
    tokens, parents, path = TREES[shape]
    told = []
    for is_lower in (False, True):
        reader = Reader(capture)
        decoder = decoder_after("llama", kind, reader)
        with RowCount(LAYERS) as count:
            lower(decoder, CHAIN if is_lower else [])
            decoder.forward_tree(DraftTree.from_lists(tokens, parents))
        assert count.rows == [len(tokens)] * LAYERS
        decoder.commit(path)
        told.append(reader.states[-1])
    one, finished = told
    assert list(one) == list(finished) == [*capture, "final"]
    for name, states in one.items():
        assert states.shape == (len(path), 64)
        assert_close(finished[name], states, kind)


def test_lower_rows_of_another_layer_start_a_chain_anew():
    whole, other = (decoder_after("llama", "full") for _ in range(2))
    lower(other, CHAIN, layer=1)
    (state,) = lower(other, [9], layer=2)
    (expected,) = lower(whole, [9], layer=2)
    np.testing.assert_array_equal(state, expected)
    assert other.cache.num_staged == 1


FORGET = {
    "rolling back": lambda decoder: decoder.rollback_to(len(decoder)),
    "committing nothing": lambda decoder: decoder.commit([]),
    "reading the last token again": lambda decoder: decoder.tree_logits(
        DraftTree.from_lists([5], [-1])
    ),
}


@each_value(kind=CACHES, how=FORGET)
def test_forgotten_lower_rows_leave_the_decoder_as_it_was(how, kind):
    whole, other = two_after(kind)
    FORGET[how](other)
    assert other.cache.num_staged == 0
    tree = DraftTree.from_lists(*TREES["branches behind"][:2])
    np.testing.assert_array_equal(other.forward_tree(tree), whole.forward_tree(tree))


def test_a_root_alone_runs_as_a_text_does(monkeypatch):
    """One position says all then, and a layer needs no array of them."""
    decoder, given = decoder_after("llama", "full"), []
    model = decoder.model
    right = type(model).hidden_states

    def spy(self, tokens, cache, positions, masks, **options):
        given.append((positions, masks[None]))
        return right(self, tokens, cache, positions, masks, **options)

    monkeypatch.setattr(type(model), "hidden_states", spy)
    decoder.forward_tree(DraftTree.from_lists([9], [-1]))
    [(position, mask)] = given
    assert isinstance(position, int)
    assert (position, mask) == (N_READ, None)
