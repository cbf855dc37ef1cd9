"""The decoder's contract for texts and trees: what it says, what it remembers, what a call changes.

Truth is the target recomputed for each text in NumPy (`truth.Target`), and a second decoder that
reads the same text token by token for the rows of the cache.
"""

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

import mlxspec.decoder.decoder
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafts.tree import DraftTree
from mlxspec.kv.cache import Cache
from tests.support.decoders import (
    EACH,
    FAMILIES,
    KINDS,
    MODELS,
    PATH,
    PATH_TOKENS,
    TEXT,
    TREE,
    assert_close,
    assert_is_as_if_read_from_nothing,
    make,
)
from tests.support.pairwise import each_value, pairwise
from tests.support.reference import reference_logits
from tests.support.tiny import tiny_model


@pytest.fixture
def decoder():
    return Decoder(MODELS["llama"])


# ---- reading text --------------------------------------------------------------------------


@pairwise(length=[1, 12, 13, 40], family=FAMILIES, kind=KINDS)
def test_says_what_the_target_says_after_a_text(family, kind, length):
    decoder, said = make(family, kind)
    decoder.observe(TEXT[:length])
    assert_is_as_if_read_from_nothing(decoder, TEXT[:length], said)


@EACH
def test_a_long_text_is_read_in_chunks(family, kind, monkeypatch, forwards):
    monkeypatch.setattr(mlxspec.decoder.decoder, "PREFILL_CHUNK", 7)
    decoder, said = make(family, kind)
    decoder.observe(TEXT)
    assert forwards.of(decoder.model) == 6
    assert_is_as_if_read_from_nothing(decoder, TEXT, said)


@pytest.mark.parametrize("family", MODELS)
def test_after_another_text_was_taken_over_it_says_what_follows_that_one(family):
    decoder, said = make(family, "full")
    other, _ = make(family, "full")
    decoder.observe(TEXT[:9])
    assert_close(decoder.next_logits(), said(TEXT[:9]))
    other.observe(TEXT[20:26])
    decoder.adopt(TEXT[20:26], other.cache)
    assert_is_as_if_read_from_nothing(decoder, TEXT[20:26], said)


@pytest.mark.parametrize("token", [-1, 24, 1000])
def test_a_token_outside_the_vocabulary_is_refused_before_anything_is_read(
    decoder, token, forwards
):
    decoder.observe(TEXT[:5])
    with pytest.raises(ValueError, match=f"token {token} is not in the vocabulary of 0 to 23"):
        decoder.observe([3, token])
    assert (decoder.history, forwards.of(decoder.model)) == (tuple(TEXT[:5]), 1)


def test_observing_nothing_and_asking_again_change_nothing(decoder, forwards):
    decoder.observe([])
    assert decoder.history == ()
    text = TEXT[:15]
    decoder.observe(text)
    decoder.observe([])
    first = np.array(decoder.next_logits())
    np.testing.assert_array_equal(decoder.next_logits(), first)
    text.append(1)
    decoder.rollback_to(15)
    decoder.next_logits()
    assert (decoder.history, forwards.of(decoder.model)) == (tuple(TEXT[:15]), 1)


def test_an_empty_history_says_nothing(decoder):
    for call in (decoder.next_logits, decoder.last_hidden_state, lambda: decoder.hidden_states([])):
        with pytest.raises(ValueError, match="the history is empty"):
            call()


# ---- several tokens in one forward ---------------------------------------------------------


@pairwise(length=[0, 7, 12, 29], family=FAMILIES, kind=KINDS)
def test_goes_back_to_any_length_and_on_from_there(family, kind, length):
    decoder, said = make(family, kind)
    decoder.observe(TEXT[:30])
    decoder.rollback_to(length)
    assert_is_as_if_read_from_nothing(decoder, TEXT[:length], said)
    decoder.observe(TEXT[30:33])
    assert_is_as_if_read_from_nothing(decoder, TEXT[:length] + TEXT[30:33], said)


@pytest.mark.parametrize("length", [-1, 6])
def test_refuses_to_go_back_to_a_length_it_never_had(decoder, length):
    decoder.observe(TEXT[:5])
    with pytest.raises(ValueError, match=f"cannot go back to {length} tokens; the history has 5"):
        decoder.rollback_to(length)
    assert decoder.history == tuple(TEXT[:5])


@pytest.mark.parametrize(("ring", "reusable"), [({}, 20), ({"max_size": 16, "keep": 2}, 0)])
def test_says_how_far_it_goes_back_without_a_forward(ring, reusable):
    model = tiny_model()
    decoder = Decoder(model, Cache(model.config.num_row_stores, **ring))
    decoder.observe([3] * 30)
    assert decoder.reusable(30) == 30
    assert decoder.reusable(20) == reusable


# ---- trees ---------------------------------------------------------------------------------


@pairwise(n_read=[0, 8, 11, 15], family=FAMILIES, kind=KINDS)
def test_tree_logits_say_what_follows_each_path_and_change_nothing(family, kind, n_read, forwards):
    decoder, said = make(family, kind)
    decoder.observe(TEXT[:n_read])
    before = forwards.of(decoder.model)
    logits = decoder.tree_logits(TREE)
    assert forwards.of(decoder.model) == before + 1
    paths = {0: [9], 1: [9, 4], 2: [9, 7], 3: [9, 4, 1], 4: [9, 4, 3], 5: [9, 4, 1, 2]}
    for node, path in paths.items():
        assert_close(logits[node], said(TEXT[:n_read] + path))
    assert_is_as_if_read_from_nothing(decoder, TEXT[:n_read], said)


@pairwise(n_kept=[0, 1, 4], n_read=[8, 11, 15], family=FAMILIES, kind=KINDS)
def test_a_committed_branch_is_as_if_it_had_been_read(family, kind, n_read, n_kept, forwards):
    decoder, said = make(family, kind)
    decoder.observe(TEXT[:n_read])
    before = forwards.of(decoder.model)
    decoder.forward_tree(TREE)
    decoder.commit(PATH[:n_kept])
    assert forwards.of(decoder.model) == before + 1
    assert_is_as_if_read_from_nothing(decoder, TEXT[:n_read] + PATH_TOKENS[:n_kept], said)


@EACH
def test_rounds_follow_each_other(family, kind, forwards):
    decoder, said = make(family, kind)
    decoder.observe(TEXT[:3])
    tokens, ends = TEXT[:3], []
    for path in ([0, 2], [0, 1, 3, 5], [0], [0, 1, 4], [0, 1, 3], [0, 2], [0, 1, 3, 5]):
        lazy = DraftTree(TREE.tokens + 0, TREE.parents + 0)
        logits = decoder.logits(decoder.forward_tree(lazy))
        tokens = tokens + [int(TREE.tokens[node].item()) for node in path]
        ends.append((logits[path[-1]], tokens))
        decoder.commit(path)
    assert forwards.of(decoder.model) == 8
    for row, text in ends:
        assert_close(row, said(text))
    assert_is_as_if_read_from_nothing(decoder, tokens, said)


@each_value(
    path=[[1], [1, 3], [0, 3], [0, 1, 2], [0, 1, 3, 4], [0, 0], [0, 6], [0, -1]],
    family=FAMILIES,
    kind=KINDS,
)
def test_refuses_to_commit_what_is_not_a_branch_and_keeps_the_tree(family, kind, path):
    decoder, said = make(family, kind)
    decoder.observe(TEXT[:15])
    decoder.forward_tree(TREE)
    with pytest.raises(ValueError, match="is not a branch from the root"):
        decoder.commit(path)
    assert decoder.history == tuple(TEXT[:15])
    decoder.commit(PATH)
    assert_is_as_if_read_from_nothing(decoder, TEXT[:15] + PATH_TOKENS, said)


def test_refuses_to_commit_what_is_not_staged(decoder):
    decoder.observe(TEXT[:5])
    for _ in range(2):  # before and after a commit
        with pytest.raises(ValueError, match="no tree is staged"):
            decoder.commit([0])
        with pytest.raises(ValueError, match="cannot commit 1 tokens of a chain of 0"):
            decoder.commit_chain([3])
        decoder.forward_tree(TREE)
        decoder.commit([0])
    decoder.forward_tree(TREE)
    with pytest.raises(ValueError, match="cannot commit 2 tokens of a chain of 0"):
        decoder.commit_chain([9, 4])
    decoder.extend_chain(mx.array([3, 4]))
    with pytest.raises(ValueError, match="cannot commit 3 tokens of a chain of 2"):
        decoder.commit_chain([3, 4, 5])
    assert decoder.history == (*TEXT[:5], 9, 9)


# ---- staged chains -------------------------------------------------------------------------


@pairwise(n_kept=[0, 1, 3, 5], family=FAMILIES, kind=KINDS)
def test_a_chain_grows_row_by_row_and_its_beginning_is_kept(family, kind, n_kept):
    decoder, said = make(family, kind)
    decoder.observe(TEXT[:10])
    for start, stop in ((10, 12), (12, 13), (13, 15)):
        logits = decoder.logits(decoder.extend_chain(mx.array(TEXT[start:stop]) + 0))
        assert_close(logits[-1], said(TEXT[:stop]))
    assert decoder.history == tuple(TEXT[:10])
    decoder.commit_chain(TEXT[10 : 10 + n_kept])
    assert_is_as_if_read_from_nothing(decoder, TEXT[: 10 + n_kept], said)


# ---- hidden states -------------------------------------------------------------------------


@EACH
def test_the_last_hidden_state_is_kept_from_the_last_forward(family, kind, forwards):
    decoder, said = make(family, kind)
    decoder.observe(TEXT[:15])
    tree_states = decoder.forward_tree(TREE)
    before = decoder.last_hidden_state()
    decoder.commit([0, 2])
    np.testing.assert_array_equal(decoder.last_hidden_state(), tree_states[2])
    assert forwards.of(decoder.model) == 2
    assert_close(decoder.logits(before), said(TEXT[:15]))


@EACH
def test_hidden_states_of_the_whole_history_leave_the_decoder_as_it_was(family, kind, forwards):
    decoder, said = make(family, kind)
    decoder.observe(TEXT[:20])
    final, captured = decoder.hidden_states([1, 0])
    assert forwards.of(decoder.model) == 2
    logits = decoder.logits(final)
    assert (final.shape, [state.shape for state in captured]) == ((20, 64), [(20, 64)] * 2)
    for length in (1, 12, 13, 20):
        assert_close(logits[length - 1], said(TEXT[:length]))
    np.testing.assert_array_equal(captured[1], decoder.model.embed(mx.array(TEXT[:20])))
    assert_is_as_if_read_from_nothing(decoder, TEXT[:20], said)


def test_the_state_entering_a_layer_is_what_the_layers_below_give(decoder):
    """A model of the first layer alone, with the same norm and head, must say the same."""
    decoder.observe(TEXT[:9])
    _, (entering,) = decoder.hidden_states([1])
    lower = tiny_model(num_hidden_layers=1)
    whole = dict(tree_flatten(decoder.model.parameters()))
    lower.load_weights([(name, whole[name]) for name, _ in tree_flatten(lower.parameters())])
    said = decoder.logits(decoder.model.model.norm(entering))
    assert_close(said, reference_logits(lower, TEXT[:9]))


@pytest.mark.parametrize("layers", [[2], [-1], [0, 5]])
def test_refuses_layers_that_are_not_there(decoder, layers):
    decoder.observe(TEXT[:5])
    with pytest.raises(ValueError, match="are not all between 0 and 1"):
        decoder.hidden_states(layers)
