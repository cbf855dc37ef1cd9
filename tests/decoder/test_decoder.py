"""The decoder's contract for text: what it says, what it remembers, what a call changes.

Truth is the target recomputed for each text in NumPy (`truth.Target`), and a second decoder that
reads the same text token by token for the rows of the cache.
"""

import numpy as np
import pytest

import mlxspec.decoder.decoder
from mlxspec.decoder.decoder import Decoder
from mlxspec.kv.cache import Cache
from tests.support.decoders import (
    EACH,
    FAMILIES,
    KINDS,
    MODELS,
    TEXT,
    TREE,
    assert_close,
    assert_is_as_if_read_from_nothing,
    make,
    read_drafts,
)
from tests.support.pairwise import pairwise
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


@EACH
def test_observing_nothing_changes_nothing(family, kind, forwards):
    decoder, said = make(family, kind)
    decoder.observe([])
    assert decoder.history == ()
    decoder.observe(TEXT[:5])
    decoder.observe([])
    assert forwards.of(decoder.model) == 1
    assert_is_as_if_read_from_nothing(decoder, TEXT[:5], said)


@pytest.mark.parametrize("token", [-1, 24, 1000])
def test_a_token_outside_the_vocabulary_is_refused_before_anything_is_read(
    decoder, token, forwards
):
    decoder.observe(TEXT[:5])
    with pytest.raises(ValueError, match=f"token {token} is not in the vocabulary of 0 to 23"):
        decoder.observe([3, token])
    assert (decoder.history, forwards.of(decoder.model)) == (tuple(TEXT[:5]), 1)


@EACH
def test_the_next_logits_may_be_asked_for_again(family, kind, forwards):
    decoder, _ = make(family, kind)
    decoder.observe(TEXT[:15])
    first = np.array(decoder.next_logits())
    np.testing.assert_array_equal(decoder.next_logits(), first)
    assert (decoder.history, forwards.of(decoder.model)) == (tuple(TEXT[:15]), 1)


def test_an_empty_history_says_nothing(decoder):
    for call in (decoder.next_logits, decoder.last_hidden_state, lambda: decoder.hidden_states([])):
        with pytest.raises(ValueError, match="the history is empty"):
            call()


def test_the_history_cannot_be_changed_from_outside(decoder):
    text = TEXT[:5]
    decoder.observe(text)
    text.append(1)
    assert decoder.history == tuple(TEXT[:5])
    assert isinstance(decoder.history, tuple)


@EACH
def test_reset_forgets_the_text_and_what_was_staged(family, kind):
    decoder, said = make(family, kind)
    decoder.observe(TEXT[:15])
    decoder.forward_tree(TREE)
    decoder.reset()
    assert (decoder.history, decoder.cache.nbytes) == ((), 0)
    with pytest.raises(ValueError, match="no tree is staged"):
        decoder.commit([0])
    decoder.observe(TEXT[20:29])
    assert_is_as_if_read_from_nothing(decoder, TEXT[20:29], said)


def test_knows_its_model(decoder):
    assert (decoder.vocab_size, decoder.num_hidden_layers, decoder.eos_token_ids) == (24, 2, ())
    assert Decoder(tiny_model(eos_token_id=[3, 5])).eos_token_ids == (3, 5)


# ---- several tokens in one forward ---------------------------------------------------------


@pairwise(n_drafts=[0, 1, 4], n_read=[1, 10], family=FAMILIES, kind=KINDS)
def test_drafts_read_at_once_say_what_follows_each(family, kind, n_read, n_drafts, forwards):
    decoder, said = make(family, kind)
    decoder.observe(TEXT[:n_read])
    logits = read_drafts(decoder, TEXT[n_read : n_read + n_drafts])
    assert forwards.of(decoder.model) == 1 + (n_drafts > 0)
    assert logits.shape == (n_drafts + 1, 24)
    for row in range(n_drafts + 1):
        assert_close(logits[row], said(TEXT[: n_read + row]))
    assert_is_as_if_read_from_nothing(decoder, TEXT[: n_read + n_drafts], said)


@EACH
def test_rejected_drafts_are_rolled_back(family, kind):
    """Three drafts, one of them right: the rejected ones leave no rows behind."""
    decoder, said = make(family, kind)
    decoder.observe(TEXT[:8])
    read_drafts(decoder, [TEXT[8], 23, 23])
    decoder.rollback_to(9)
    decoder.observe(TEXT[9:15])
    assert_is_as_if_read_from_nothing(decoder, TEXT[:15], said)


@pairwise(length=[0, 7, 12, 29], family=FAMILIES, kind=KINDS)
def test_goes_back_to_any_length(family, kind, length):
    decoder, said = make(family, kind)
    decoder.observe(TEXT[:30])
    decoder.rollback_to(length)
    assert_is_as_if_read_from_nothing(decoder, TEXT[:length], said)


@EACH
def test_goes_back_one_token_at_a_time(family, kind):
    decoder, said = make(family, kind)
    decoder.observe(TEXT[:16])
    for length in range(15, 9, -1):
        decoder.rollback_to(length)
        assert_is_as_if_read_from_nothing(decoder, TEXT[:length], said)


@EACH
def test_goes_on_after_going_back(family, kind):
    decoder, said = make(family, kind)
    decoder.observe(TEXT[:16])
    decoder.rollback_to(15)
    decoder.observe(TEXT[20:23])
    assert_is_as_if_read_from_nothing(decoder, TEXT[:15] + TEXT[20:23], said)


@pytest.mark.parametrize("length", [-1, 6])
def test_refuses_to_go_back_to_a_length_it_never_had(decoder, length):
    decoder.observe(TEXT[:5])
    with pytest.raises(ValueError, match=f"cannot go back to {length} tokens; the history has 5"):
        decoder.rollback_to(length)
    assert decoder.history == tuple(TEXT[:5])


def test_going_nowhere_keeps_the_last_hidden_state(decoder, forwards):
    decoder.observe(TEXT[:5])
    decoder.rollback_to(5)
    decoder.next_logits()
    assert forwards.of(decoder.model) == 1


@pytest.mark.parametrize(("ring", "reusable"), [({}, 20), ({"max_size": 16, "keep": 2}, 0)])
def test_says_how_far_it_goes_back_without_a_forward(ring, reusable):
    model = tiny_model()
    decoder = Decoder(model, Cache(model.config.num_row_stores, **ring))
    decoder.observe([3] * 30)
    assert decoder.reusable(30) == 30
    assert decoder.reusable(20) == reusable
