"""The decoder's contract for trees and staged chains: what is kept, what is forgotten."""

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafts.tree import DraftTree
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
        logits = decoder.logits(decoder.forward_tree(TREE))
        tokens = tokens + [int(TREE.tokens[node].item()) for node in path]
        ends.append((logits[path[-1]], tokens))
        decoder.commit(path)
    assert forwards.of(decoder.model) == 8
    for row, text in ends:
        assert_close(row, said(text))
    assert_is_as_if_read_from_nothing(decoder, tokens, said)


@EACH
def test_a_tree_of_lazy_tokens_can_be_committed(family, kind):
    decoder, said = make(family, kind)
    decoder.observe(TEXT[:8])
    lazy = DraftTree(TREE.tokens + 0, TREE.parents + 0)
    decoder.forward_tree(lazy)
    decoder.commit(PATH)
    assert_is_as_if_read_from_nothing(decoder, TEXT[:8] + PATH_TOKENS, said)


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


def test_refuses_to_commit_where_no_tree_is_staged(decoder):
    decoder.observe(TEXT[:5])
    with pytest.raises(ValueError, match="no tree is staged"):
        decoder.commit([0])
    decoder.forward_tree(TREE)
    decoder.commit([0])
    with pytest.raises(ValueError, match="no tree is staged"):
        decoder.commit([0])


@EACH
def test_a_second_tree_replaces_the_first(family, kind):
    decoder, said = make(family, kind)
    decoder.observe(TEXT[:8])
    decoder.forward_tree(TREE)
    decoder.forward_tree(DraftTree.from_lists([5, 6], [-1, 0]))
    decoder.commit([0, 1])
    assert_is_as_if_read_from_nothing(decoder, [*TEXT[:8], 5, 6], said)


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


def test_a_chain_starts_anew_behind_a_tree(decoder):
    decoder.observe(TEXT[:5])
    decoder.forward_tree(TREE)
    decoder.extend_chain(mx.array(TEXT[5:7]))
    assert decoder.cache.num_staged == 2
    with pytest.raises(ValueError, match="no tree is staged"):
        decoder.commit([0])


def test_refuses_to_commit_more_than_the_chain_holds(decoder):
    decoder.observe(TEXT[:5])
    with pytest.raises(ValueError, match="cannot commit 1 tokens of a chain of 0"):
        decoder.commit_chain([3])
    decoder.extend_chain(mx.array([3, 4]))
    with pytest.raises(ValueError, match="cannot commit 3 tokens of a chain of 2"):
        decoder.commit_chain([3, 4, 5])
    assert decoder.history == tuple(TEXT[:5])


def test_refuses_to_commit_a_tree_as_a_chain(decoder):
    decoder.observe(TEXT[:5])
    decoder.forward_tree(TREE)
    with pytest.raises(ValueError, match="cannot commit 2 tokens of a chain of 0"):
        decoder.commit_chain([9, 4])


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


@pytest.mark.parametrize("is_tied", [False, True])
def test_embeddings_and_head_are_those_of_the_checkpoint(is_tied):
    decoder = Decoder(tiny_model(tie_word_embeddings=is_tied))
    embedding = np.array(decoder.model.model.embed_tokens.weight)
    head = embedding if is_tied else np.array(decoder.model.lm_head.weight)
    states = decoder.model.embed(mx.array([3, 0, 3]))
    np.testing.assert_array_equal(states, embedding[[3, 0, 3]])
    for shape in ((64,), (3, 64), (1, 3, 64)):
        hidden = mx.random.normal(shape, key=mx.random.key(1))
        assert_close(decoder.logits(hidden), np.array(hidden) @ head.T)
