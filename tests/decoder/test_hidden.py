"""Who reads the hidden states of the history is told every committed token once, in order."""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.decoder.hidden import HiddenStates
from mlxspec.drafters.base import Drafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafts.tree import DraftTree
from tests.support.decoded_text import Reader
from tests.support.tiny import make_cache, tiny_model

CACHES = ("full", "rotating", "int8")
TREE = DraftTree.from_lists([9, 2, 4, 8, 1], [-1, 0, 0, 2, 3])


class Notebook(Reader):
    """Keeps everything it is told."""

    capture = (0, 1, 2)
    name = "notebook"

    def read(self, tokens, states):
        self.tokens += tokens
        parts = [states.final, *(states.entering[layer] for layer in self.capture)]
        self.rows += list(np.concatenate([np.array(part) for part in parts], axis=1))


MODEL = tiny_model()


@pytest.fixture(params=CACHES)
def kind(request):
    return request.param


@pytest.fixture
def notebook():
    return Notebook()


@pytest.fixture
def decoder(kind, notebook):
    decoder = Decoder(MODEL, make_cache(MODEL, kind))
    decoder.attach([notebook])
    return decoder


def assert_in_step(decoder, notebook, kind):
    """It holds what a notebook does that hears the same text in one piece."""
    assert tuple(notebook.tokens) == decoder.history
    anew, other = Decoder(MODEL, make_cache(MODEL, kind)), Notebook()
    anew.attach([other])
    anew.observe(notebook.tokens)
    np.testing.assert_allclose(np.stack(notebook.rows), np.stack(other.rows), rtol=2e-4, atol=2e-4)


def test_a_prompt_and_accepted_branches_are_told_as_if_read_in_one_piece(decoder, notebook, kind):
    decoder.observe([3, 1, 4, 1, 5])
    decoder.forward_tree(TREE)
    decoder.commit([0, 2, 3])
    decoder.forward_tree(TREE)
    decoder.commit([0])
    assert_in_step(decoder, notebook, kind)


@pytest.mark.parametrize("length", [7, 20], ids=["within the ring", "past the ring"])
def test_what_is_rolled_back_is_forgotten_before_other_text_is_told(
    length, decoder, notebook, kind
):
    decoder.observe(list(range(length)))
    decoder.rollback_to(length - 3)
    decoder.observe([7, 8])
    assert_in_step(decoder, notebook, kind)


def test_readers_are_told_what_is_read_while_they_are_there(decoder, notebook):
    decoder.observe([3, 1, 4])
    decoder.attach([notebook])  # the same one keeps the history
    assert decoder.history == (3, 1, 4)
    decoder.attach([])
    decoder.observe([1])
    assert notebook.tokens == [3, 1, 4]
    decoder.attach([Notebook()])  # which joins later: the history is read anew
    assert decoder.history == ()


def test_a_reader_that_is_out_of_step_makes_the_history_be_read_anew(decoder, notebook):
    decoder.observe([3, 1, 4])
    notebook.forget(1)
    decoder.attach([notebook])
    assert (decoder.history, notebook.tokens) == ((), [])


def test_a_reader_that_was_interrupted_is_told_again_after_going_back(
    decoder, notebook, kind, monkeypatch
):
    decoder.observe([3, 1, 4])

    def interrupted(tokens, states):
        notebook.tokens += tokens  # the count is right, and the rows are missing
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(notebook, "read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            decoder.observe([1, 5])
    decoder.attach([notebook])
    decoder.rollback_to(len(decoder))
    assert decoder.history == (3, 1, 4, 1, 5)
    decoder.observe([9])
    assert_in_step(decoder, notebook, kind)


def test_a_pool_is_read_to_through_those_it_is_made_of():
    class ReadingDrafter(Notebook, Drafter):
        """Reads states too."""

    reading = ReadingDrafter()
    assert PoolDrafter([NoDrafter(), reading]).readers == (reading,)


@pytest.mark.parametrize("rows", [[], [0], [1, 2], [0, 2], [2, 0], [0, 1, 2]])
def test_rows_are_taken_in_the_order_given(rows):
    states = HiddenStates(mx.arange(6).reshape(3, 2), {4: mx.arange(3).reshape(3, 1)})
    taken = states.rows(rows)
    assert taken.final.tolist() == [[2 * row, 2 * row + 1] for row in rows]
    assert taken.entering[4].tolist() == [[row] for row in rows]


def test_rows_taken_do_not_keep_the_others_in_memory():
    before = mx.get_active_memory()
    states = HiddenStates(mx.ones((4096, 64)) * 2, {0: mx.ones((4096, 64)) * 3})
    taken = states.rows(range(5))
    mx.eval(states.final, states.entering, taken.final, taken.entering)
    del states
    assert mx.get_active_memory() - before < 64_000  # of 2 million bytes
